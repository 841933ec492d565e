"""The settings of a training run: its optimiser, learning-rate schedule, batches, evaluations and processes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import nn

from lrpe.errors import require
from lrpe.lab.training.processes import TIMEOUT
from lrpe.weight_decay import parameter_groups

PrecisionKind = Literal["float32", "bfloat16", "float16"]
Schedule = Literal["inverse-sqrt", "polynomial", "cosine", "constant"]


@dataclass(frozen=True)
class Optimization:
    """An optimiser and its schedule, in updates or epochs.

    Attributes:
        updates: number of optimiser steps; ignored if ``epochs`` is set.
        epochs: passes over the training data; 0 counts in ``updates``.
        batch: samples per update, over all processes and accumulated steps.
        rate: the highest learning rate, reached after the warm-up.
        warmup: updates of linear warm-up from ``first_rate``; ignored if ``warmup_epochs`` is set.
        warmup_epochs: the same in epochs; 0 counts in ``warmup``.
        first_rate: the rate before the first update.
        schedule: how the rate decreases after the warm-up.
        optimizer: adam (weight decay in the gradient, as fairseq's) or adamw.
        betas: Adam's betas.
        eps: Adam's epsilon.
        weight_decay: for matrices; norms, biases and parameters of encodings are exempt.
        clip: the largest gradient norm; 0 does not clip.
    """

    updates: int = 1000
    epochs: float = 0.0
    batch: int = 32
    rate: float = 1e-3
    warmup: int = 100
    warmup_epochs: float = 0.0
    first_rate: float = 0.0
    schedule: Schedule = "cosine"
    optimizer: Literal["adam", "adamw"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0

    def __post_init__(self):
        for name in ("updates", "batch"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1; got {name}={getattr(self, name)}.")
        for name in ("epochs", "warmup_epochs", "weight_decay", "clip"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0; got {name}={getattr(self, name)}.")
        if (self.epochs > 0) == (self.warmup_epochs > 0):  # mixed units are compared in count_in_updates
            warmup, whole = (self.warmup_epochs, self.epochs) if self.epochs else (self.warmup, self.updates)
            require(0 <= warmup < whole, f"The warm-up must end before the run does; got {warmup} of {whole}.")
        require(self.rate > 0, f"rate must be positive; got rate={self.rate}.")

    def count_in_updates(self, updates_per_epoch: int) -> "Optimization":
        """Return the same schedule with epochs converted to updates."""
        updates, warmup = self.updates, self.warmup
        if self.epochs:
            updates = max(1, round(self.epochs * updates_per_epoch))
        if self.warmup_epochs:
            warmup = min(round(self.warmup_epochs * updates_per_epoch), updates - 1)
        return replace(self, updates=updates, epochs=0.0, warmup=warmup, warmup_epochs=0.0)

    def rate_at(self, update: int) -> float:
        """Return the learning rate of update 0, 1, ..., updates - 1."""
        if update < self.warmup:
            return self.first_rate + (self.rate - self.first_rate) * (update + 1) / self.warmup
        return self.rate * _FACTORS[self.schedule](update + 1 - self.warmup, self.updates - self.warmup, self.warmup)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[self.optimizer]
        groups = parameter_groups(model, weight_decay=self.weight_decay)
        return kind(groups, lr=self.rate, betas=self.betas, eps=self.eps, fused=True)


# The factor of the rate as a function of (updates since the warm-up, their total, updates of the warm-up).
_FACTORS: dict[str, Callable[[int, int, int], float]] = {
    "inverse-sqrt": lambda done, total, warmup: math.sqrt(max(warmup, 1) / (max(warmup, 1) + done)),
    "polynomial": lambda done, total, warmup: max(0.0, 1 - (done - 1) / total),
    "cosine": lambda done, total, warmup: (1 + math.cos(math.pi * (done - 1) / total)) / 2,
    "constant": lambda done, total, warmup: 1.0,
}


@dataclass(frozen=True)
class Training:
    """Settings of a training run, apart from its task and model.

    Attributes:
        optimization: the optimiser and its schedule.
        micro_batch: samples per process and step, with gradients accumulated; 0 takes a process's whole share at once.
        evaluate_every: updates between evaluations, each followed by a checkpoint; the last update is always evaluated.
        save_every: updates between further checkpoints; 0 saves only after evaluations.
        evaluation_batch: samples per process and step in evaluation; 0 uses the size of training.
        evaluation_batches: how many batches of the validation split are evaluated, over all processes, each of
            ``evaluation_batch`` samples (of the training batch if that is 0); 0 evaluates the whole split.
        precision: the number format of the forward pass.
        seed: determines the weights, the order of the data, and dropout.
        workers: how many processes load data.
        compile: whether to compile the model with torch.compile.
        checkpointing: whether to recompute activations in the backward pass instead of keeping them. What acts on every
            token alike is then computed for some thousand tokens at a time.
        parallel: whether each process keeps the whole model (ddp) or a shard of it (fsdp).
        context_parallel: how many processes share each row of tokens, each of them a part; language modelling with
            linear attention only. It divides the number of processes.
        wandb: the Weights & Biases project to log to, if any.
        timeout: seconds to wait for a process that does not answer before the run ends.
    """

    optimization: Optimization = field(default_factory=Optimization)
    micro_batch: int = 0
    evaluate_every: int = 500
    save_every: int = 0
    evaluation_batch: int = 0
    evaluation_batches: int = 0
    precision: PrecisionKind = "float32"
    seed: int = 0
    workers: int = 0
    compile: bool = False
    checkpointing: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"
    context_parallel: int = 1
    wandb: str | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        require(
            self.evaluate_every >= 1, f"evaluate_every must be at least 1; got evaluate_every={self.evaluate_every}."
        )
        require(self.seed >= 0, f"seed must be at least 0; got seed={self.seed}.")
        require(1 <= self.timeout <= 10**6, f"timeout must be from 1 to 10^6 seconds; got timeout={self.timeout}.")
        require(
            self.context_parallel >= 1,
            f"context_parallel must be at least 1; got context_parallel={self.context_parallel}.",
        )
        require(
            self.context_parallel == 1 or not self.compile,
            f"compile must be False with context_parallel={self.context_parallel}: torch.compile cannot trace what the "
            "processes exchange. Pass --training.compile false.",
        )
        for name in ("micro_batch", "save_every", "evaluation_batch", "evaluation_batches", "workers"):
            require(getattr(self, name) >= 0, f"{name} must be at least 0; got {name}={getattr(self, name)}.")
