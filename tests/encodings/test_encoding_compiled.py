"""torch.compile makes one graph of an encoding, whose outputs and gradients are those of eager mode."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from tests.encodings.compositions import features, make

pytestmark = pytest.mark.slow

# Code made by inductor is tested once, on a layer of Type 2 (tests/attention/test_compile.py).
SOME = [
    "type1",
    "type2",
    "type3",
    "half-rotated",
    "learned*unitary",
    "fourier*orthogonal",
    "per",
    "spe",
]


def step(encode, q, k, positions):
    table = encode.table(positions, q.dtype)
    return (encode.query(q, table) @ encode.key(k, table).mT).square().mean()


@pytest.mark.parametrize("name", SOME)
def test_one_graph_has_the_outputs_and_gradients_of_eager_mode(name):
    torch.compiler.reset()
    encode = make(name, 8, heads=3, learned_angles=True, learned_basis=True).eval()
    q, k = (features(2, 3, 6, 8, seed=i, dtype=torch.float32).requires_grad_() for i in (0, 1))
    positions = torch.tensor([-4, 0, 7, 1000, 2, 3])
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    wanted = [q, k, *encode.parameters()]
    results = []
    for run in (step, compiled):
        loss = run(encode, q, k, positions)
        results.append((loss, *torch.autograd.grad(loss, wanted)))
    assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["type2", "type3"])
def test_another_length_needs_no_third_graph(name):
    torch.compiler.reset()
    counter = CompileCounter()
    encode = make(name, 8)
    compiled = torch.compile(encode, fullgraph=True, backend=counter)
    for n in (5, 9, 12, 30):
        x = features(2, 3, n, 8, dtype=torch.float32)
        assert_close(compiled(x, torch.arange(n)), encode(x, torch.arange(n)))
    assert counter.frame_count <= 2  # one for the first length, one for all others
