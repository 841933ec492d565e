"""Draw W(t←s) over the words of a sentence: fixed and token-dependent steps, with fixed and token-dependent decays.

A small model of words, two layers of linear attention with encoding="selective" and decay="gated", learns the topics of
Python's help for a minute. Both choices start as Type 2 with the spread decay, so "fixed" in the picture is the model
before training, and "token-dependent" is the same model after it. The sentence is not in the text. Drawing needs
``pip install '.[report]'``.

    python examples/picture_token_steps.py                             # writes token-steps.png
    python examples/picture_token_steps.py --steps 2000 --head 1 --output longer.png
"""

import argparse
import re
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lrpe
from lrpe.atomic import write_atomically
from lrpe.lab.report.picture import Spec, as_png

WIDTH, HEADS, DEPTH, LENGTH, BATCH, WORDS = 96, 4, 2, 128, 8, 4096
LABELS = 55  # pixels for words beside an axis, the same in all pictures so that they align
SENTENCE = "If the function returns no value, the caller gets None, and the loop starts again."


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = lrpe.LinearAttention(WIDTH, HEADS, encoding="selective", decay="gated")
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class WordModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))

    def forward(self, text: Tensor) -> Tensor:
        """Map word numbers (batch, n) to logits of the next words (batch, n, WORDS)."""
        return self.head(self.blocks(self.embedding(text)))

    @torch.no_grad()
    def read(self, text: Tensor, head: int, pair: int) -> "Brought":
        """Return what words (n,) bring to a head of the first layer and one of its pairs of features."""
        attention = self.blocks[0].attention
        x = self.blocks[0].before_attention(self.embedding(text[None]))
        alpha = attention.encoding.matrix.angles.scaled().flatten()[pair]
        return Brought(attention.steps(x)[0, head].double() * alpha, attention.decay(x)[0, head].double())


class Brought(NamedTuple):
    """Return the angle u_τ α by which each token turns, and its log-decay log r_τ; both (n,)."""

    turn: Tensor
    log_decay: Tensor

    def transport(self) -> Tensor:
        """Return e^(c_t - c_s) cos((p_t - p_s) α) for s ≤ t: the diagonal of W(t←s) in the basis P, (n, n)."""
        phase, c = self.turn.cumsum(0), self.log_decay.cumsum(0)
        return (phase[:, None] - phase).cos() * (c[:, None] - c).clamp(max=0).exp()


def train(model: WordModel, text: Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(lrpe.parameter_groups(model, lr=3e-3, weight_decay=0.01))
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH, 1))
        window = text[starts + torch.arange(LENGTH + 1)]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step} of {steps}: loss {loss.item():.2f}", flush=True)


def heat_map(W: Tensor, words: list[str], title: str) -> Spec:
    """Return the picture of the lower triangle, with a row per query and a column per key."""
    n = len(words)
    cells = [{"query": t, "key": s, "W": W[t, s].item()} for t in range(n) for s in range(t + 1)]
    scale = {"scheme": "blueorange", "domain": [-1, 1]}
    return {
        "title": {"text": title, "frame": "group"},
        "width": 290,
        "height": 290,
        "data": {"values": cells},
        "mark": "rect",
        "encoding": {
            "x": axis("key", "key s", words),
            "y": axis("query", "query t", words),
            "color": {"field": "W", "type": "quantitative", "scale": scale, "legend": {"title": "W(t←s)"}},
        },
    }


def bars(values: Tensor, words: list[str], title: str, unit: str) -> Spec:
    """Return the picture of one number per word."""
    rows = [{"word": i, "value": value} for i, value in enumerate(values.tolist())]
    y = {"field": "value", "type": "quantitative", "title": unit, "axis": {"tickCount": 4, "minExtent": LABELS}}
    x = axis("word", None, words)
    data = {"data": {"values": rows}, "mark": {"type": "bar", "color": "#44AA99"}}
    return {
        "title": {"text": title, "frame": "group"},
        "width": 290,
        "height": 90,
        **data,
        "encoding": {"x": x, "y": y},
    }


def axis(field: str, title: str | None, words: list[str]) -> Spec:
    """Return an axis with a label per word. Tokens are numbered, because a word may occur twice."""
    names = {"labelExpr": f"{words!r}[datum.value]", "labelAngle": 0 if field == "query" else -60, "grid": False}
    names |= {"labelOverlap": False, "labelFontSize": 11, "title": title, "minExtent": LABELS}
    return {"field": field, "type": "ordinal", "axis": names}


def picture(words: list[str], fixed: Brought, own: Brought) -> Spec:
    """Return bar charts of what the tokens bring after training, above four heat maps."""
    numbers = [
        bars(own.turn, words, "turn of each token", "radians"),
        bars(own.log_decay.exp(), words, "decay of each token", "r"),
    ]
    mixed = [Brought(fixed.turn, own.log_decay), Brought(own.turn, fixed.log_decay)]
    upper = [
        heat_map(fixed.transport(), words, "fixed steps, fixed decay"),
        heat_map(mixed[0].transport(), words, "fixed steps, token-dependent decay"),
    ]
    lower = [
        heat_map(mixed[1].transport(), words, "token-dependent steps, fixed decay"),
        heat_map(own.transport(), words, "token-dependent steps and decay"),
    ]
    return {"vconcat": [{"hconcat": row} for row in (numbers, upper, lower)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="training steps of 8 x 128 words")
    parser.add_argument("--head", type=int, default=2, choices=range(HEADS), help="the head of the first layer")
    parser.add_argument("--pair", type=int, default=1, choices=range(WIDTH // HEADS // 2), help="0 turns fastest")
    parser.add_argument("--output", type=Path, default=Path("token-steps.png"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text, words = words_of("\n".join(topics[name] for name in sorted(topics))), words_of(SENTENCE)
    common = [word for word, _ in Counter(text).most_common(WORDS - 1)]
    numbers = {word: number for number, word in enumerate(common, 1)}  # 0 is any other word
    model, sentence = WordModel(), torch.tensor([numbers.get(word, 0) for word in words])
    fixed = model.read(sentence, args.head, args.pair)
    train(model, torch.tensor([numbers.get(word, 0) for word in text]), args.steps)
    own = model.read(sentence, args.head, args.pair)
    print(f"before training: every word turns by {fixed.turn[0]:.3f} and decays by {fixed.log_decay[0].exp():.3f}")
    for word, turn, log_r in zip(words, *own, strict=True):
        print(f"{word:>12}: turns by {turn:6.3f}, decays by {log_r.exp():.3f}")
    write_atomically(args.output, as_png(picture(words, fixed, own)))
    print(f"Wrote {args.output}.")


if __name__ == "__main__":
    main()
