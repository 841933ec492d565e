"""torch.compile makes one graph of a whole model, forwards and backwards, and one more for every other length."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import metrics
from torch.testing import assert_close

from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow

MODELS = {
    "causal": (LrpeForCausalLM, {"decay": "spread"}, (17, 64, 100, 131)),
    "masked": (LrpeForMaskedLM, {"encoding": "type1", "decay": None}, (17, 64, 131)),
}


def loss_and_gradients(run, model, tokens):
    model.zero_grad()
    losses = run(**tokens, **({"use_cache": False} if model.config.causal else {})).loss
    losses.sum().backward()
    return losses.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def check(compiled, model, tokens):
    """Compare the losses and all gradients of the compiled model with the model's own."""
    losses, gradients = loss_and_gradients(compiled, model, tokens)
    expected_losses, expected = loss_and_gradients(model, model, tokens)
    assert_close(losses, expected_losses, rtol=1e-4, atol=1e-4)
    for name, gradient in gradients.items():
        scale = max(float(expected[name].abs().max()), 1.0)
        assert_close(gradient / scale, expected[name] / scale, rtol=0, atol=1e-4, msg=name)


def draw(n):
    ids = draw_ids(2, n + 1, seed=n)
    return {"input_ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous()}


@pytest.mark.parametrize(("kind", "changes", "lengths"), MODELS.values(), ids=MODELS)
def test_two_graphs_of_a_whole_model_serve_every_length(kind, changes, lengths):
    torch.compiler.reset()
    model, counter = tiny(kind, **changes).float().train(), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for n in lengths:
        check(compiled, model, draw(n))
    assert counter.frame_count == 2  # one for the first length, one for all others


def test_inductor_compiles_a_whole_model_once_for_every_length():
    """Inductor takes half a minute per graph, so there is one layer, and the first call says which size will change."""
    torch.compiler.reset()
    metrics.reset()
    model, counter = tiny(LrpeForCausalLM, decay="spread", num_hidden_layers=1), CompileCounterWithBackend("inductor")
    model = model.float().train()
    compiled, first = torch.compile(model, fullgraph=True, backend=counter), draw(70)
    for ids in first.values():
        torch._dynamo.mark_dynamic(ids, 1)
    for tokens in (first, draw(17), draw(131)):
        check(compiled, model, tokens)
    assert counter.frame_count == 1
    assert metrics.generated_kernel_count > 0  # C++ of inductor's own, not torch's operations one by one
