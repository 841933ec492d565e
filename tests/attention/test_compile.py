"""torch.compile makes one graph of the layer, with the outputs and gradients of eager mode at every length."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import lrpe
from lrpe import LinearAttention
from tests.encodings.compositions import features

pytestmark = pytest.mark.slow

LENGTHS = (17, 64, 100, 130, 257)
LAYERS = {
    "causal": ({"encoding": "type2", "decay": [0.9, 0.99]}, "inductor"),
    "bidirectional": ({"encoding": "type1", "normalizer": "output", "summation": "bidirectional"}, "aot_eager"),
}


def results(run, layer, x, mask):
    y = run(x, mask=mask)
    return y, *torch.autograd.grad((y * features(*y.shape, seed=1).to(y)).sum(), [x, *layer.parameters()])


@pytest.mark.parametrize(("choices", "backend"), LAYERS.values(), ids=LAYERS)
def test_two_graphs_serve_every_length(choices, backend):
    torch.compiler.reset()
    torch.manual_seed(0)
    layer, counter = LinearAttention(8, 2, **choices), CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for n in LENGTHS:
        x = features(2, n, 8, seed=n, dtype=torch.float32).requires_grad_()
        mask = torch.ones(2, n, dtype=torch.bool)
        mask[0, :5] = mask[1, -3:] = False
        found = results(compiled, layer, x, mask)
        with lrpe.engines.use("torch"):  # which also computes what is compiled
            expected = results(layer, layer, x, mask)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, rtol=0, atol=1e-5 * max(b.abs().max().item(), 1))
    assert counter.frame_count <= 2  # one for the first length, one for all others


def test_one_graph_serves_every_step():
    torch.compiler.reset()
    torch.manual_seed(0)
    layer, counter = LinearAttention(8, 2, "type2", decay=[0.9, 0.99]), CompileCounterWithBackend("aot_eager")
    step, x = torch.compile(layer.step, fullgraph=True, backend=counter), features(2, 6, 8).float()
    with torch.no_grad():
        whole, state = layer(x), layer.initial_state(2)
        for t in range(6):
            y, state = step(x[:, t], state)
            assert_close(y, whole[:, t], rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1
