"""A language model whose rows several processes hold in parts gives what it gives on one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM, LrpeForSequenceClassification
from lrpe.parallel import context, own_part
from tests.lab.training.forked import finish, fork
from tests.models.tiny import draw_ids, tiny

N = 19
IDS, LABELS = draw_ids(2, N), draw_ids(2, N, seed=1)
MASK = (torch.arange(N) < torch.tensor([[N], [6]])).long()  # on one process every token of the first row is real
RESTARTS = torch.cat([torch.arange(13), torch.arange(6)]).expand(2, -1)  # the second part begins in the middle of one
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "causal": (LrpeForCausalLM, {"encoding": "selective", "decay": "gated", "convolution": 4}, {}),
    "absolute": (LrpeForCausalLM, {"absolute_positions": "learned"}, {"attention_mask": MASK}),
    "packed": (LrpeForCausalLM, {"decay": "learned"}, {"position_ids": RESTARTS}),
    "packed and padded": (LrpeForCausalLM, {}, {"position_ids": RESTARTS, "attention_mask": MASK}),
    "masked": (LrpeForMaskedLM, {"decay": None}, {"attention_mask": MASK}),
}


def compute(model: Any, given: dict[str, Any], parts: Any) -> Any:
    """Return the logits and the loss of one's own tokens, divided by the number of all."""
    logits = model(parts(IDS), **{name: parts(value) for name, value in given.items()}, use_cache=False).logits
    labels = parts(torch.where(given.get("attention_mask", torch.ones_like(IDS)) == 1, LABELS, -100))
    return logits, cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / IDS.numel()


def check(kind: Any, fields: dict[str, Any], given: dict[str, Any]) -> None:
    model = tiny(kind, **fields)
    whole, loss = compute(model, given, lambda x: x)
    loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    model.train().gradient_checkpointing_enable()
    with context():
        real = own_part(given.get("attention_mask", torch.ones_like(IDS))) == 1
        found, loss = compute(model, given, own_part)
        of_whole = own_part(whole)
    loss.backward()  # checkpointing runs the blocks again, outside of the context
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for gradient in gradients.values():
        dist.all_reduce(gradient)
    assert_close(found[real], of_whole[real], rtol=1e-10, atol=1e-10)
    assert gradients.keys() == {name for name, gradient in expected.items() if gradient is not None}
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name], rtol=1e-9, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


def refuse() -> None:
    causal, pooled = tiny(LrpeForCausalLM), tiny(LrpeForSequenceClassification, pooling="mean")
    hybrid = tiny(LrpeForCausalLM, attention=["linear", "softmax"])
    normed = tiny(LrpeForCausalLM, norm="batch").train()
    calls = {
        "labels must be None": lambda: causal(IDS, labels=IDS),
        "Generation": lambda: causal.generate(IDS, max_new_tokens=2),
        "A cache": lambda: causal(IDS, use_cache=True),
        "linear layers only": lambda: hybrid(IDS),
        "norm='batch'": lambda: normed(IDS),
        "Pooling": lambda: pooled(IDS),
    }
    with context():
        for words, call in calls.items():
            with pytest.raises(LrpeError, match=words):
                call()


def check_all(folder: Path) -> None:
    wrong = {}
    for name in [*CASES, "refusals"]:
        try:
            check(*CASES[name]) if name in CASES else refuse()
        except (AssertionError, LrpeError, RuntimeError, pytest.fail.Exception) as error:
            wrong[name] = f"{type(error).__name__}: {error}"
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(wrong))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    finish(fork(check_all, 2, folder), seconds=60)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", [*CASES, "refusals"])
def test_two_processes_give_what_one_gives(wrong, name):
    assert [each[name] for each in wrong if name in each] == []
