"""An exported layer, run by onnxruntime, is the layer: exported at one size, it runs at every batch and length."""

import warnings

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from lrpe import LinearAttention, SoftmaxAttention
from tests.encodings.compositions import features

pytestmark = pytest.mark.slow

WIDTH = 8
SHAPES = ((1, 1), (3, 2), (1, 40), (4, 63), (2, 64), (1, 65), (5, 100), (2, 300))  # a chunk has 64 tokens
BOTH_WAYS = {"summation": "bidirectional"}
DECAY = {"decay": [0.9, 0.99]}
# The length of the example, what is exported, and whether a mask goes with it.
LAYERS = {
    "causal, gate and convolution": (
        64,
        lambda: LinearAttention(WIDTH, 2, "type3", decay=None, normalizer="encoded", output_gate="silu", convolution=4),
        True,
    ),
    "causal with a decay": (
        128,
        lambda: LinearAttention(WIDTH, 4, "rope", key_heads=2, value_dim=6, normalizer="output-head", **DECAY),
        False,
    ),
    "gated and selective": (65, lambda: LinearAttention(WIDTH, 4, "selective", key_heads=2, decay="gated"), True),
    "bidirectional": (
        40,
        lambda: LinearAttention(WIDTH, 2, "type1", decay=None, normalizer="output", **BOTH_WAYS),
        True,
    ),
    "gated and selective-free, bidirectional": (
        40,
        lambda: LinearAttention(WIDTH, 2, "selective-free", decay="gated", **BOTH_WAYS),
        True,
    ),
    "softmax, gated and selective": (40, lambda: SoftmaxAttention(WIDTH, 2, "selective", decay="gated"), True),
    "softmax with a decay": (128, lambda: SoftmaxAttention(WIDTH, 4, "rope", key_heads=2, **DECAY), False),
    "softmax, bidirectional": (64, lambda: SoftmaxAttention(WIDTH, 2, "type1", **BOTH_WAYS), True),
}


class Masked(nn.Module):
    """A layer whose second input is its mask, where a context would be."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, mask=mask)


def inputs(batch: int, n: int, masked: bool) -> tuple[Tensor, ...]:
    """Noise; in the first row the last third of it is padding, in the last row the first token."""
    x, mask = features(batch, n, WIDTH, seed=n, dtype=torch.float32), torch.ones(batch, n, dtype=torch.bool)
    mask[0, n - n // 3 :] = False
    mask[-1, : n // 2][:1] = False
    return (x, mask) if masked else (x,)


@pytest.mark.parametrize(("length", "make", "masked"), LAYERS.values(), ids=LAYERS)
def test_onnxruntime_gives_what_torch_gives_for_any_batch_and_length(length, make, masked):
    torch.manual_seed(0)
    layer = Masked(make()).eval() if masked else make().eval()
    for name, weight in layer.named_parameters():
        if name.endswith(
            ("decay.weight", "steps.weight", "convolution.weight")
        ):  # which start where tokens do not matter
            torch.nn.init.normal_(weight, std=0.3)
    example = inputs(2, length, masked)
    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("n", min=1, max=4096)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            torch.export.export(layer, example, dynamic_shapes=(sizes,) * len(example)), verbose=False
        )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [given.name for given in session.get_inputs()]
    for batch, n in SHAPES:
        given = inputs(batch, n, masked)
        (y,) = session.run(None, {name: x.numpy() for name, x in zip(names, given, strict=True)})
        assert_close(torch.from_numpy(y), layer(*given).detach(), rtol=1e-4, atol=1e-5)
