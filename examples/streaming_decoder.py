"""Read a prompt at once with a small causal model, then stream bytes from a state of constant size.

The model is trained for some seconds on a little text of the standard library (the topics of Python's help), so that
its output is not quite noise. Before streaming, the script checks the law behind it: a pass over a whole text gives
the same result as a pass over its first part followed by single steps.

    python examples/streaming_decoder.py
    python examples/streaming_decoder.py --steps 2000 --bytes 2000
"""

import argparse
import time
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lrpe

WIDTH, HEADS, DEPTH, LENGTH, BATCH = 96, 4, 2, 128, 8

State = list[lrpe.DecodingState]  # one per layer


class Block(nn.Module):
    """Attention, then an MLP. The decay makes some heads attend to near tokens and others to distant ones."""

    def __init__(self):
        super().__init__()
        self.attention = lrpe.LinearAttention(WIDTH, HEADS, encoding="type2", decay=lrpe.spread_decay(HEADS))
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def prefill(self, x: Tensor, state: lrpe.DecodingState | None) -> tuple[Tensor, lrpe.DecodingState]:
        attended, state = self.attention.prefill(self.before_attention(x), state)
        x = x + attended
        return x + self.mlp(self.before_mlp(x)), state


class ByteModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, text: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Map bytes (batch, n) to logits of the next bytes (batch, n, 256) and the state after them; n can be 1."""
        x, after = self.embedding(text), []
        for i, block in enumerate(self.blocks):
            x, layer_state = block.prefill(x, None if state is None else state[i])
            after.append(layer_state)
        return self.head(x), after


def as_bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()))


def train(model: ByteModel, text: Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH, 1))
        window = text[starts + torch.arange(LENGTH + 1)]
        logits, _ = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"step {step} of {steps}: loss {loss.item():.2f}, {time.perf_counter() - began:.0f} s", flush=True)


@torch.no_grad()
def compare_whole_and_steps(model: ByteModel, text: Tensor) -> float:
    """Return the largest difference between a whole pass and a pass over two thirds of the text followed by steps."""
    whole, _ = model(text[None])
    cut = len(text) * 2 // 3
    first, state = model(text[None, :cut])
    parts = [first]
    for i in range(cut, len(text)):
        logits, state = model(text[None, i : i + 1], state)
        parts.append(logits)
    return float((whole - torch.cat(parts, 1)).abs().max())


@torch.no_grad()
def stream(model: ByteModel, prompt: str, count: int, seed: int = 0):
    """Yield bytes sampled at a temperature of 0.5, each with the number of elements in the state."""
    generator = torch.Generator().manual_seed(seed)
    logits, state = model(as_bytes(prompt)[None])
    for _ in range(count):
        byte = torch.multinomial((logits[:, -1] / 0.5).softmax(-1), 1, generator=generator)
        yield chr(int(byte)), sum(layer.S.numel() + layer.z.numel() for layer in state)
        logits, state = model(byte, state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--bytes", type=int, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = as_bytes(" ".join("".join(topics[name] for name in sorted(topics)).split()))
    model = ByteModel()
    train(model, text, args.steps)

    difference = compare_whole_and_steps(model, text[:200])
    print(f"\nLargest difference between the whole pass and prefill and steps: {difference:.0e}\n")
    prompt = "The return value of the function "
    print(prompt, end="")
    sizes = set()
    for character, size in stream(model, prompt, args.bytes):
        print(character, end="", flush=True)
        sizes.add(size)
    print(
        f"\n\nThe state held {', '.join(f'{size:,}' for size in sizes)} numbers after every one of {args.bytes} bytes."
    )


if __name__ == "__main__":
    main()
