"""torch.compile makes one graph of a whole model, forwards and backwards, and one more for every other length."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow

MODELS = {  # inductor takes most of a minute for every graph, so it has one length and one layer
    "causal": (LrpeForCausalLM, {"decay": "spread"}, "aot_eager", (17, 64, 100, 131)),
    "masked": (LrpeForMaskedLM, {"encoding": "type1", "decay": None}, "aot_eager", (17, 64, 131)),
    "inductor": (LrpeForCausalLM, {"decay": "spread", "num_hidden_layers": 1}, "inductor", (70,)),
}


def loss_and_gradients(run, model, n):
    ids = draw_ids(2, n + 1, seed=n)
    model.zero_grad()
    losses = run(
        input_ids=ids[:, :-1], targets=ids[:, 1:], **({"use_cache": False} if model.config.causal else {})
    ).loss
    losses.sum().backward()
    return losses.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(("kind", "changes", "backend", "lengths"), MODELS.values(), ids=MODELS)
def test_two_graphs_of_a_whole_model_serve_every_length(kind, changes, backend, lengths):
    torch.compiler.reset()
    model, counter = tiny(kind, **changes).float().train(), CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for n in lengths:
        losses, gradients = loss_and_gradients(compiled, model, n)
        expected = loss_and_gradients(model, model, n)
        assert_close(losses, expected[0], rtol=1e-4, atol=1e-4)
        for name, gradient in gradients.items():
            scale = max(float(expected[1][name].abs().max()), 1.0)
            assert_close(gradient / scale, expected[1][name] / scale, rtol=0, atol=1e-4, msg=name)
    assert counter.frame_count == min(2, len(lengths))  # one for the first length, one for all others
