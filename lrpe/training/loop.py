"""The training loop: one process or many, resumed where it stopped, with the losses of a run that never did."""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from tqdm import tqdm

from lrpe.errors import LrpeError, require
from lrpe.tasks.evaluate import evaluate, to_device
from lrpe.tasks.task import Task
from lrpe.training.checkpoint import load_checkpoint, save_checkpoint
from lrpe.training.optimization import Optimization, clip_
from lrpe.training.processes import rank, world
from lrpe.training.record import Record


@dataclass(frozen=True)
class Training:
    """How a run goes, beside what it learns.

    Attributes:
        optimization: the optimiser and its schedule.
        micro_batch: samples that a process takes at a time, adding up gradients; its whole share of the batch if 0.
        evaluate_every: updates between evaluations (and after the last); a checkpoint follows each.
        save_every: updates between checkpoints; as often as it is evaluated if 0.
        evaluation_batch: samples of a batch in evaluation; as in training if 0.
        evaluation_batches: at most so many batches of the validation split; all if 0.
        precision: of the forward pass.
        seed: of the weights, the order of the data, and dropout.
        workers: processes that load data.
        compile: whether the model is compiled.
        checkpointing: whether activations are computed again for the gradient instead of kept.
        parallel: whether each of several processes keeps the whole model (ddp), or a share of it (fsdp).
        wandb: the project of Weights & Biases that also gets the metrics, if any.
    """

    optimization: Optimization = field(default_factory=Optimization)
    micro_batch: int = 0
    evaluate_every: int = 500
    save_every: int = 0
    evaluation_batch: int = 0
    evaluation_batches: int = 0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    seed: int = 0
    workers: int = 0
    compile: bool = False
    checkpointing: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"
    wandb: str | None = None


class StoppedError(Exception):
    """The run was asked to end, and has saved itself."""


def train(
    task: Task,
    bare: nn.Module,
    training: Training,
    folder: Path,
    config: dict[str, Any],
    title: str,
    about: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Train ``bare`` on the task, or go on with the run in the folder; the metrics of its last evaluation.

    ``config`` is what the run is known by, and ``about`` what else its record tells, such as the hashes of its data.
    """
    return Loop(task, bare, training, Record(folder, config, rank() == 0, about), title).run()


class Loop:
    def __init__(self, task: Task, bare: Any, training: Training, record: Record, title: str):
        batch = training.optimization.batch
        self.accumulated = accumulated(batch, training.micro_batch)
        size = batch // world() // self.accumulated
        self.task, self.bare, self.training, self.record, self.title = task, bare, training, record, title
        self.device = next(bare.parameters()).device
        if training.checkpointing:
            bare.gradient_checkpointing_enable()
        self.model = wrap(bare)
        options = {"rank": rank(), "world": world(), "workers": training.workers}
        self.batches = task.batches("train", size, training=True, seed=training.seed, **options)
        self.validation = task.batches("validation", training.evaluation_batch or size, training=False, **options)
        self.updates_per_epoch = len(self.batches) // self.accumulated
        require(self.updates_per_epoch >= 1, f"An epoch has one full batch or more; got batch={batch}.")
        self.plan = training.optimization.settled(self.updates_per_epoch)
        self.optimizer = self.plan.build(self.model)
        self.forward: Any = torch.compile(self.model) if training.compile else self.model
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=training.precision == "float16")
        self.update, self.best, self.found = 0, None, {}
        self.stopping = False

    def run(self) -> dict[str, float]:
        self.resume()
        updates = self.plan.updates
        with stop_politely(self), Bar(self.title, updates, self.update, rank() == 0) as bar:
            steps = self.steps()
            while self.update < updates:
                started = time.perf_counter()
                loss, norm = self.learn(steps)
                self.update += 1
                self.record.add(
                    update=self.update, loss=loss, norm=norm, rate=self.rate, seconds=time.perf_counter() - started
                )
                bar.show(self.update, loss, self.found.get(self.task.metric), self.task.metric)
                if self.due(self.training.evaluate_every):
                    self.evaluate()
                elif self.training.save_every and self.due(self.training.save_every):
                    self.save(best=False)
                if self.asked_to_stop() and self.update < updates:
                    self.save(best=False)
                    raise StoppedError(f"Stopped after update {self.update} and saved; the same command goes on.")
        return self.found

    def resume(self) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        found = self.record.newest()
        if found is None:
            self.record.forget_after(0)
            torch.manual_seed(self.training.seed + 1 + rank())
            return
        progress = load_checkpoint(found[0], self.model, self.optimizer)
        self.update, self.best, self.found = progress["update"], progress["best"], progress["metrics"]
        self.record.forget_after(self.update)
        self.record.log(f"Resumed after update {self.update} from {found[0].name}.")

    def steps(self) -> Iterator[Any]:
        """Batches from the one on that comes next, epoch after epoch; what does not fill an update is left out."""
        epoch, start = divmod(self.update, self.updates_per_epoch)
        while True:
            whole = (self.updates_per_epoch - start) * self.accumulated
            yield from islice(self.batches.epoch(epoch, start * self.accumulated), whole)
            epoch, start = epoch + 1, 0

    def learn(self, steps: Iterator[Any]) -> tuple[float, float]:
        """One update: the mean loss of its samples over all processes, and the norm of the gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate_at(self.update)
        self.optimizer.zero_grad()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for step in range(self.accumulated):
            with self.without_sync(step < self.accumulated - 1), self.autocast():
                loss = self.task.loss(self.forward, to_device(next(steps), str(self.device)))
                self.scaler.scale(loss.total).backward()
            sums += torch.stack([loss.total.detach().double(), loss.count.to(self.device).double()])
        if dist.is_initialized():
            dist.all_reduce(sums)
        mean = (sums[0] / sums[1]).item()
        if not math.isfinite(mean):
            raise LrpeError(self.broken(mean))
        self.scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        scale = float(world() / sums[1])  # processes were averaged: this makes it the mean of all samples
        for gradient in gradients:
            gradient.mul_(scale)
        norm = clip_(self.model.parameters(), self.plan.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return mean, norm

    def evaluate(self) -> None:
        limit = self.training.evaluation_batches
        batches = self.validation.epoch(0)
        some = (batch for _, batch in zip(range(limit), batches, strict=False)) if limit else batches
        with self.autocast():
            self.found = evaluate(self.task, self.model, some, str(self.device))
        value = self.found[self.task.metric]
        better = self.best is None or (value > self.best if self.task.better == "higher" else value < self.best)
        self.best = value if better else self.best
        self.record.add(update=self.update, **{f"validation {name}": figure for name, figure in self.found.items()})
        self.record.log(
            f"update {self.update}: " + ", ".join(f"{name} {figure:.4f}" for name, figure in self.found.items())
        )
        self.save(best=better)

    def save(self, best: bool) -> None:
        progress = {"update": self.update, "best": self.best, "metrics": self.found}
        save_checkpoint(self.record.place(self.update), self.model, self.bare, self.optimizer, progress)
        self.record.mark(self.update, best)

    def due(self, every: int) -> bool:
        return self.update % every == 0 or self.update == self.plan.updates

    def broken(self, mean: float) -> str:
        before = [f"{line['loss']:.3f}" for line in self.record.metrics()[-5:] if "loss" in line]
        return (
            f"The loss became {mean} at update {self.update + 1} (rate {self.rate:.2e}); before that it was "
            f"{', '.join(before) or 'not measured'}. The last checkpoint is kept; try a lower rate, or clip."
        )

    @property
    def rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def asked_to_stop(self) -> bool:
        """Whether any process was asked to."""
        if not dist.is_initialized():
            return self.stopping
        asked = torch.tensor(float(self.stopping), device=self.device)
        dist.all_reduce(asked)
        return bool(asked > 0)

    def autocast(self):
        kinds = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
        dtype = kinds[self.training.precision]
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def without_sync(self, more: bool):
        return self.model.no_sync() if more and hasattr(self.model, "no_sync") else nullcontext()


def accumulated(batch: int, micro_batch: int) -> int:
    """How many steps of each process make up a batch."""
    share = batch // world()
    micro = min(micro_batch or share, share)
    require(
        batch % world() == 0 and micro >= 1 and share % micro == 0,
        f"Processes share a batch evenly and take their share in equal parts; got batch={batch}, processes={world()}, "
        f"micro_batch={micro_batch}.",
    )
    return share // micro


def wrap(model: nn.Module) -> Any:
    """The model as it trains on all processes."""
    return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model


@contextmanager
def stop_politely(loop: Loop) -> Iterator[None]:
    """SIGTERM and Ctrl-C are obeyed after the update that is under way; a second Ctrl-C at once."""

    def ask(*_: Any) -> None:
        if loop.stopping:
            raise KeyboardInterrupt
        loop.stopping = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Bar:
    """A live bar on a terminal, and a line now and then elsewhere."""

    def __init__(self, title: str, total: int, done: int, shown: bool):
        self.title, self.total, self.shown = title, total, shown
        live = shown and sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=done, desc=title, unit="update", dynamic_ncols=True) if live else None
        self.last = time.monotonic()

    def show(self, update: int, loss: float, figure: float | None, metric: str) -> None:
        text = f"loss {loss:.3f}" + ("" if figure is None else f", {metric} {figure:.4g}")
        if self.bar is not None:
            self.bar.update(1)
            self.bar.set_postfix_str(text)
        elif self.shown and (time.monotonic() - self.last > 10 or update == self.total):
            self.last = time.monotonic()
            print(f"{self.title}: update {update} of {self.total}, {text}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
