"""Replace the self-attention of an existing torch model by linear attention with relative positions.

The model is an nn.TransformerEncoder with a classifier on top. Each nn.MultiheadAttention is replaced by a
bidirectional LinearAttention that keeps its projections (in_proj stacks those of q, k and v), in an adapter with the
signature that the encoder layer calls. The key padding mask is inverted: torch's is True for padding, ours for real
tokens. Trained weights were learned for a softmax, so the swapped model gives other answers until it is trained; here
it learns from scratch which of two marks comes first in a string of letters. That needs positions: with --encoding
none it can only guess.

    python examples/swap_into_a_model.py
    python examples/swap_into_a_model.py --encoding none
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lrpe

LETTERS, FIRST, SECOND, PADDING = 8, 8, 9, 10


class InPlaceOfMultihead(nn.Module):
    """LinearAttention with the part of nn.MultiheadAttention's interface that nn.TransformerEncoderLayer uses."""

    batch_first = True
    in_proj_bias = None  # keeps the encoder layer from using its softmax-only fast path in eval()

    def __init__(self, replaced: nn.MultiheadAttention, encoding: str):
        super().__init__()
        width, heads, bias = replaced.embed_dim, replaced.num_heads, replaced.in_proj_bias is not None
        self.attention = lrpe.LinearAttention(width, heads, encoding, summation="bidirectional", decay=None, bias=bias)
        self.attention.load_state_dict(projections(replaced), strict=False)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, need_weights=False, is_causal=False):
        if attn_mask is not None or is_causal:
            raise ValueError("An n × n mask needs scores that linear attention never forms; see summation='causal'.")
        mask = None if key_padding_mask is None else is_real(key_padding_mask)
        return self.attention(query, mask=mask), None


def projections(replaced: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Return the weights of nn.MultiheadAttention under LinearAttention's names."""
    parts = {f"o_proj.{name}": value for name, value in replaced.out_proj.state_dict().items()}
    for kind in ("weight", "bias"):
        joined = getattr(replaced, f"in_proj_{kind}")
        if joined is not None:
            parts |= {f"{name}_proj.{kind}": part for name, part in zip("qkv", joined.chunk(3), strict=True)}
    return parts


def is_real(key_padding_mask: Tensor) -> Tensor:
    """Return the mask of real tokens; the encoder passes bools, or floats with -inf at padding."""
    return key_padding_mask == 0


def swap(model: nn.Module, encoding: str = "type2") -> int:
    """Replace every nn.MultiheadAttention in a model and return their number."""
    swapped = 0
    for parent in list(model.modules()):
        if isinstance(parent, nn.TransformerEncoder):
            parent.use_nested_tensor = False  # another fast path that supports only softmax
        for name, child in parent.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(parent, name, InPlaceOfMultihead(child, encoding))
                swapped += 1
    return swapped


class Classifier(nn.Module):
    """A typical model: torch's encoder, the mean of its outputs over real tokens, two classes."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(PADDING + 1, width)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, text: Tensor) -> Tensor:
        padding = text == PADDING
        x = self.encoder(self.embedding(text), src_key_padding_mask=padding)
        return self.head(x.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True))


def batch(size: int, generator: torch.Generator, length: int = 24) -> tuple[Tensor, Tensor]:
    """Draw padded strings of letters with two marks; the label says which mark comes first."""
    text = torch.randint(LETTERS, (size, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (size,), generator=generator)
    places = torch.stack([torch.randperm(length // 2, generator=generator)[:2] for _ in range(size)])
    text.scatter_(1, places, torch.tensor([FIRST, SECOND]).expand(size, 2))
    return text.masked_fill(torch.arange(length) >= lengths[:, None], PADDING), (places[:, 0] > places[:, 1]).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--encoding", default="type2")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Classifier()
    print(f"Swapped {swap(model, args.encoding)} layers of self-attention.")

    generator = torch.Generator().manual_seed(0)
    text, _ = batch(4, generator)
    model.eval()
    longer = F.pad(text, (0, 5), value=PADDING)
    apart = (model(text) - model(longer)).abs().max().item()
    print(f"Five more tokens of padding change the answers by {apart:.0e}.")

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, args.steps + 1):
        text, answers = batch(32, generator)
        loss = F.cross_entropy(model(text), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step} of {args.steps}: loss {loss.item():.3f}", flush=True)
    text, answers = batch(500, generator)
    model.eval()
    print(f"Right on {(model(text).argmax(-1) == answers).double().mean().item():.0%} of 500 new strings.")


if __name__ == "__main__":
    main()
