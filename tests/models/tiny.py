"""Models small enough to test with, of every kind."""

from typing import Any

import torch

from lrpe.models import LrpeConfig, LrpeForCausalLM

VOCABULARY, WIDTH = 40, 32

ENCODINGS = (
    "type1", "type2", "type3", "rope", "rope-half", "permuteformer", "cosformer", "half-rotated", "none", "per", "spe",
    "pope", "hope", "mamba3",
    "fourier*unitary", "cosine*orthogonal", "learned*orthogonal", "householder*permutation",
)  # fmt: skip


def tiny_config(encoding: Any = "type2", **changes: Any) -> LrpeConfig:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "decay": None if encoding == "per" else "spread",  # PermuteFormer brings its own
        "initializer_range": 0.3,  # so that the logits of an untrained model differ by more than rounding
    }
    return LrpeConfig(encoding=encoding, **sizes | changes)


def tiny(model: type, encoding: Any = "type2", seed: int = 0, **changes: Any):
    """A model of that class in float64, in evaluation."""
    torch.manual_seed(seed)
    return model(tiny_config(encoding, **changes)).double().eval()


def draw_ids(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed))


IDS = draw_ids(2, 11)


def perturbed(cls: type = LrpeForCausalLM, **changes: Any):
    """A model in float32 whose tensors, learned or fixed, are others than its configuration would make."""
    torch.manual_seed(1)
    model = cls(tiny_config(**{"initializer_range": 0.1} | changes)).eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("log_alpha"):
                tensor.uniform_(-0.1, 0.1)
            elif tensor.is_floating_point():
                tensor.mul_(1 + 0.01 * torch.rand_like(tensor) * (tensor < 0.9))  # and a decay stays below 1
    return model


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(IDS).logits


def assert_same_tensors(model, other) -> None:
    ours, theirs = model.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert theirs[name].dtype == tensor.dtype, name
        assert torch.equal(theirs[name], tensor), name
