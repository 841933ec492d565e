"""transformers' Trainer trains our models, and its ways of saving memory and padding change nothing."""

import inspect
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import DataCollatorWithFlattening, Trainer, TrainerCallback, TrainingArguments
from transformers.data import default_data_collator

from lrpe import parameter_groups
from lrpe.models import LrpeForCausalLM
from tests.models.tiny import draw_ids, tiny, tiny_config

pytestmark = pytest.mark.slow

LENGTH = 24
TEXT = inspect.getsource(string).encode()[: 40 * LENGTH]
WINDOWS = [list(TEXT[i : i + LENGTH]) for i in range(0, len(TEXT), LENGTH)]
DATA = [{"input_ids": window, "labels": window} for window in WINDOWS]


class Stop(TrainerCallback):
    """Ends a run after so many steps, as a machine that is switched off does."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


def trainer(folder: Path, *callbacks: TrainerCallback, data: Any = DATA, dropout: float = 0.1, **changes: Any):
    """With dropout, so that resuming has to bring the random numbers back too."""
    torch.manual_seed(0)
    model = LrpeForCausalLM(tiny_config(vocab_size=256, initializer_range=0.02, hidden_dropout_prob=dropout))
    chosen = {
        "output_dir": str(folder),
        "max_steps": 8,
        "save_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": [],
        "seed": 0,
    }
    args = TrainingArguments(**chosen | changes)
    return Trainer(model, args, default_data_collator, train_dataset=data, callbacks=list(callbacks))


def losses(run: Trainer) -> list[float]:
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


def test_a_run_that_is_resumed_ends_as_the_unbroken_one_does(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.train()
    broken = trainer(tmp_path / "broken", Stop(4))
    broken.train()
    assert broken.state.global_step == 4
    resumed = trainer(tmp_path / "broken")
    resumed.train(resume_from_checkpoint=True)
    assert len(losses(whole)) == 8
    assert losses(whole)[-1] < losses(whole)[0] - 1
    assert losses(resumed) == losses(whole)
    ended = resumed.model.state_dict()
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(ended[name], weight), name


def test_a_checkpoint_of_the_trainer_is_a_model(tmp_path):
    run = trainer(tmp_path, max_steps=2, save_steps=2)
    run.train()
    loaded, model = LrpeForCausalLM.from_pretrained(tmp_path / "checkpoint-2"), run.model.eval()
    ids = torch.tensor(WINDOWS[:2])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert run.evaluate(DATA[:4])["eval_loss"] < 6  # and a cache among the outputs does not trouble it


def test_accumulated_gradients_count_tokens_and_not_batches(tmp_path):
    """A text with few labels weighs little: one step over four batches is one step over all of them as one."""
    data = [{"input_ids": window, "labels": [-100] * 5 * i + window[5 * i :]} for i, window in enumerate(WINDOWS[:4])]
    plain = {"max_steps": 1, "save_strategy": "no", "optim": "sgd", "max_grad_norm": 0.0, "learning_rate": 1.0}
    one = trainer(tmp_path, data=data, dropout=0.0, **plain)
    four = trainer(
        tmp_path, data=data, dropout=0.0, per_device_train_batch_size=1, gradient_accumulation_steps=4, **plain
    )
    before = one.model.lm_head.weight.detach().clone()
    one.train()
    four.train()
    assert (one.model.lm_head.weight - before).abs().max() > 1e-3
    assert_close(four.model.lm_head.weight, one.model.lm_head.weight, rtol=0, atol=1e-6)


def first_step(folder: Path, weight_decay: float) -> dict[str, torch.Tensor]:
    """The parameters after one step of a Trainer that was given our groups."""
    run = trainer(folder, max_steps=1, save_strategy="no", dropout=0.0, warmup_steps=0)
    groups = parameter_groups(run.model, lr=1e-2, weight_decay=weight_decay)
    with_groups = Trainer(run.model, run.args, run.data_collator, DATA, optimizers=(torch.optim.AdamW(groups), None))
    with_groups.train()
    return {name: value.detach().clone() for name, value in run.model.named_parameters()}


def test_the_trainer_lets_decay_what_parameter_groups_says(tmp_path):
    """In the first step the gradients are the same, so that only what decays can end elsewhere."""
    without, with_decay = (first_step(tmp_path, decay) for decay in (0.0, 10.0))
    moved = {name for name, value in without.items() if not torch.equal(value, with_decay[name])}
    assert moved == {name for name in without if any(part in name for part in ("proj", "embed", "convolution"))}


CHOICES: dict[str, dict[str, Any]] = {
    "linear with a decay": {},
    "linear": {"decay": None, "normalizer": "plain", "encoding": "type1"},
    "per": {"encoding": "per"},
    "softmax": {"attention": "softmax", "decay": None},
    "softmax with a decay": {"attention": "softmax"},
    "both": {"attention": ["linear", "softmax"], "encoding": "type3"},
    "gate and convolution": {"attention": "linear+softmax", "output_gate": "sigmoid", "convolution": 3},
}


def gradients(model, ids) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
@pytest.mark.parametrize("choice", CHOICES)
def test_gradient_checkpointing_changes_neither_loss_nor_gradients(choice, reentrant):
    model, ids = tiny(LrpeForCausalLM, **CHOICES[choice]).train(), draw_ids(2, 70)
    loss, expected = gradients(model, ids)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    runs = []
    model.model.layers[0].attention.q_proj.register_forward_hook(lambda *_: runs.append(1))
    again, found = gradients(model, ids)
    assert len(runs) == 2  # once more for the gradients
    assert_close(again, loss)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


COLLATORS = {
    "positions": {},
    "numbers": {"return_seq_idx": True},
    "boundaries": {"return_flash_attn_kwargs": True},
    "both": {"return_seq_idx": True, "return_flash_attn_kwargs": True},
}


@pytest.mark.parametrize("collator", COLLATORS)
@pytest.mark.parametrize("choice", CHOICES)
def test_sequences_packed_into_one_row_are_the_sequences_one_by_one(choice, collator):
    model = tiny(LrpeForCausalLM, **CHOICES[choice]).train()
    texts = [draw_ids(1, n, seed=n)[0].tolist() for n in (9, 1, 30)]
    batch = DataCollatorWithFlattening(**COLLATORS[collator])([{"input_ids": text} for text in texts])
    packed = model(**batch)
    rows = [torch.tensor([text]) for text in texts]
    assert_close(packed.logits, torch.cat([model(row).logits for row in rows], 1))
    summed = sum(model(row, labels=row).loss * (row.shape[1] - 1) for row in rows if row.shape[1] > 1)
    assert_close(packed.loss, summed / (8 + 29))


def test_the_loss_is_shared_out_over_the_tokens_that_the_trainer_counted():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 9)
    assert_close(model(ids, labels=ids, num_items_in_batch=64).loss, model(ids, labels=ids).loss * 16 / 64)


@pytest.mark.parametrize("choice", CHOICES)
def test_autocast_to_bfloat16_stays_near(choice):
    model = tiny(LrpeForCausalLM, **{"initializer_range": 0.1} | CHOICES[choice]).float()
    ids = draw_ids(2, 40)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(ids, labels=ids)
        rough.loss.backward()
    exact = model(ids, labels=ids)
    assert rough.logits.dtype == torch.bfloat16
    assert (rough.logits.float() - exact.logits).norm() / exact.logits.norm() < 0.05
    assert abs(rough.loss - exact.loss) < 0.02
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
