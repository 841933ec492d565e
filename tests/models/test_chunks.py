"""Chunks of tokens give the same losses and gradients as the whole text, with less memory at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lrpe import LrpeError
from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM, block
from tests.models.tiny import draw_ids, tiny

BATCH, N, VOCABULARY = 2, 19, 60


class Greatest(TorchDispatchMode):
    """The number of elements of the greatest tensor that an operation returned."""

    elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **kwargs or {})
        sizes = [x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return out


def inputs():
    ids, targets = draw_ids(BATCH, N), draw_ids(BATCH, N)
    targets[0, 3] = targets[1] = -100
    return {"input_ids": ids, "targets": targets}


def losses_and_gradients(model, checkpointing, **given):
    model.train()
    (model.gradient_checkpointing_enable if checkpointing else model.gradient_checkpointing_disable)()
    model.zero_grad()
    loss = model(**given).loss
    (loss * torch.arange(N)).sum().backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("changes", [{}, {"norm_position": "post", "gated": True}, {"norm": "batch"}])
@pytest.mark.parametrize("kind", [LrpeForCausalLM, LrpeForMaskedLM])
def test_chunks_and_checkpointing_change_no_loss_and_no_gradient(monkeypatch, kind, changes):
    model, given = tiny(kind, vocab_size=VOCABULARY, **changes), inputs()
    whole = losses_and_gradients(model, False, **given)
    monkeypatch.setattr(block, "chunk_tokens", lambda width: 10)  # 5 of each row, and 4 at last
    for checkpointing in (False, True):
        losses, gradients = losses_and_gradients(model, checkpointing, **given)
        assert_close(losses, whole[0])
        for name, gradient in gradients.items():
            assert_close(gradient, whole[1][name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("kind", [LrpeForCausalLM, LrpeForMaskedLM])
def test_losses_per_token_are_the_cross_entropy_of_the_logits(kind):
    model, given = tiny(kind, vocab_size=VOCABULARY).eval(), inputs()
    output, logits = model(**given), model(given["input_ids"]).logits
    assert output.logits is None
    assert_close(output.loss, F.cross_entropy(logits.float().mT, given["targets"], reduction="none"))
    labels = torch.cat([torch.full((BATCH, 1), -100), given["targets"][:, :-1]], 1)  # which the causal model shifts
    labels = labels if kind is LrpeForCausalLM else given["targets"]
    scored = given["targets"] != -100
    scored[:, -1] &= kind is LrpeForMaskedLM
    assert_close(model(given["input_ids"], labels=labels).loss, output.loss[scored].mean())


def test_no_tensor_has_the_inner_width_or_the_vocabulary_for_every_token(monkeypatch):
    model, given = tiny(LrpeForCausalLM, vocab_size=200, intermediate_size=200), inputs()
    monkeypatch.setattr(block, "chunk_tokens", lambda width: 10)
    with Greatest() as seen:
        losses_and_gradients(model, True, **given)
    assert seen.elements < BATCH * N * 200


def test_a_chunk_has_fewer_tokens_the_wider_it_is_but_enough_for_matrix_products():
    assert [block.chunk_tokens(width) for width in (256, 2048, 50_257, 10**6)] == [4096, 4096, 256, 256]


def test_labels_and_targets_exclude_each_other():
    given = inputs()
    with pytest.raises(LrpeError, match="exclude each other"):
        tiny(LrpeForCausalLM)(**given, labels=given["targets"])


def test_targets_leave_no_logits_to_keep():
    with pytest.raises(LrpeError, match="logits_to_keep must be 0; got logits_to_keep=1"):
        tiny(LrpeForCausalLM)(**inputs(), logits_to_keep=1)


@pytest.mark.parametrize("shape", [(BATCH, N - 1), (1, N), (BATCH, N, 1)], ids=str)
@pytest.mark.parametrize("kind", [LrpeForCausalLM, LrpeForMaskedLM])
def test_targets_are_one_per_token(kind, shape):
    with pytest.raises(LrpeError, match=r"targets must have shape \(batch, n\) = \(2, 19\); got \("):
        tiny(kind)(draw_ids(BATCH, N), targets=torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("value", [60, -1])
@pytest.mark.parametrize("kind", [LrpeForCausalLM, LrpeForMaskedLM])
def test_targets_outside_the_vocabulary_are_named(kind, value):
    given = inputs()
    given["targets"][0, 0] = value
    with pytest.raises(LrpeError, match=rf"targets must be at least 0 and below vocab_size, .* got .*{value}"):
        tiny(kind, vocab_size=VOCABULARY)(**given)


def test_targets_may_have_any_integer_type_and_no_other():
    model, given = tiny(LrpeForCausalLM, vocab_size=VOCABULARY).eval(), inputs()
    targets = given.pop("targets")
    assert_close(model(**given, targets=targets.int()).loss, model(**given, targets=targets).loss)
    with pytest.raises(LrpeError, match=r"targets must be integers; got torch\.float32"):
        model(**given, targets=targets.float())


@pytest.mark.parametrize("kind", [LrpeForCausalLM, LrpeForMaskedLM])
def test_another_ignored_index_is_refused_with_targets(kind):
    with pytest.raises(LrpeError, match="ignore_index must be -100 with targets; got ignore_index=0"):
        tiny(kind)(**inputs(), ignore_index=0)
