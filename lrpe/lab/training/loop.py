"""The training loop, on one or many processes. A resumed run has the losses of an uninterrupted one."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lrpe.errors import LrpeError, StoppedError
from lrpe.lab.tasks.task import Batch, Loss, Task, describe_metrics, evaluate, to_device
from lrpe.lab.training.checkpoint import CheckpointHistory, Progress, load_checkpoint, save_checkpoint
from lrpe.lab.training.parallel import Contexts, choose_parallel
from lrpe.lab.training.processes import Stop, rank, run_on_first, sum_over_processes, world_size
from lrpe.lab.training.record import Config, Monitor, ProgressBar, Record, choose_monitors
from lrpe.lab.training.run_files import RunInfo, read_metrics
from lrpe.lab.training.settings import Training
from lrpe.lab.training.steps import (
    Precision,
    Steps,
    build_validation_batches,
    draw_seeds,
    measure,
    scale_and_clip_,
    set_seed,
)


def train(
    task: Task,
    bare: nn.Module,
    training: Training,
    folder: Path,
    config: Config,
    title: str,
    about: RunInfo = RunInfo(),  # noqa: B008 (frozen)
    upgrade: Callable[[Config], Config] = lambda old: old,
) -> dict[str, float]:
    """Train ``bare`` on the task, or resume the run in the folder.

    Args:
        task, bare, training: the task, the unwrapped model, and the settings.
        folder: the run's folder.
        config: the run's full configuration; a folder with another one is refused.
        title: the label of progress lines.
        about: further facts for environment.json, such as hashes of the data.
        upgrade: converts a configuration written by an earlier version.

    Returns:
        The metrics of the last evaluation.
    """
    record = Record(folder, config, rank() == 0, upgrade)
    with record.locked():
        run_on_first(lambda: record.begin(about))
        return Loop(task, bare, training, record, title).run()


class _Update(NamedTuple):
    """One update over all processes: mean loss, gradient norm before clipping, tokens or samples, stop requested."""

    loss: float
    norm: float
    amount: float
    stop: bool


class Loop:
    """A run in progress. ``update`` counts finished updates; ``metrics`` are those of the last evaluation."""

    def __init__(self, task: Task, bare: Any, training: Training, record: Record, title: str):
        self.task, self.bare, self.training, self.record, self.title = task, bare, training, record, title
        self.device = next(bare.parameters()).device
        if training.checkpointing:
            bare.gradient_checkpointing_enable()
        self.parallel = choose_parallel(training.parallel)
        self.contexts = Contexts(training.context_parallel, self.device)
        self.model = self.parallel.wrap(bare)
        self.forward: Any = torch.compile(self.model) if training.compile else self.model
        self.precision = Precision(training.precision, self.device)
        batch, seed, workers = training.optimization.batch, training.seed, training.workers
        self.steps = Steps(task, batch, training.micro_batch, training.context_parallel, seed=seed, workers=workers)
        limit = training.evaluation_batches * (training.evaluation_batch or batch)
        self.validation = build_validation_batches(task, training.evaluation_batch or self.steps.size, limit, workers)
        self.plan = training.optimization.count_in_updates(self.steps.updates_per_epoch)
        self.optimizer = self.plan.build(self.model)
        self.seeds = draw_seeds(training.seed, self.plan.updates)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.history, self.stop = CheckpointHistory(record.folder), Stop()
        self.monitors: list[Monitor] = []
        self.update, self.saved, self.metrics, self.unit = 0, 0, {}, ""
        self.best: tuple[int, float | None] | None = None  # (update, metric); the metric is None if it was NaN

    def run(self) -> dict[str, float]:
        self.resume()
        if self.update < self.plan.updates:
            with (
                self.stop,
                self.monitored(),
                ProgressBar(self.title, self.plan.updates, self.update, rank() == 0) as bar,
            ):
                self.train_on(bar)
        return self.metrics

    def resume(self) -> None:
        """Load the newest undamaged checkpoint, if there is one."""
        progress = run_on_first(self.history.find_newest)
        for text in self.history.damaged:
            way = "The previous one is used." if progress else "There is no previous one, so the run starts over."
            self.remark(f"{text} {way}")
        if progress is not None:
            self.update = self.saved = progress.update
            self.best, self.metrics = progress.best, progress.figures()
            self.precision.restore(progress.precision)
            for text in load_checkpoint(self.history.path_of(self.update), self.model, self.optimizer):
                self.remark(text)
            self.record.log(f"Resumed after update {self.update}.")
            self.link_checkpoints()
        self.record.drop_metrics_after(self.update)

    def remark(self, text: str) -> None:
        if rank() == 0:
            print(text, file=sys.stderr)
        self.record.log(text)

    @contextmanager
    def monitored(self) -> Iterator[None]:
        if self.record.writes:
            project, config = self.training.wandb, self.record.config
            self.monitors = choose_monitors(self.record.folder, self.update, project, self.title, config)
        try:
            yield
        finally:
            for monitor in self.monitors:
                monitor.close()

    def train_on(self, bar: ProgressBar) -> None:
        steps, every = self.steps.after(self.update), self.training.save_every
        while self.update < self.plan.updates:
            started = time.perf_counter()
            done = self.learn(steps)
            self.update += 1
            self.report(loss=done.loss, norm=done.norm, rate=self.rate, seconds=time.perf_counter() - started)
            bar.show(self.update, done.amount, self.unit, {"loss": done.loss} | self.headline)
            if self.is_due(self.training.evaluate_every):
                self.evaluate()
            elif every and self.is_due(every):
                self.save()
            if done.stop and self.update < self.plan.updates:
                self.save()
                raise StoppedError(f"Stopped after update {self.update} and saved; run the same command to resume.")
        if any(sum_over_processes([self.stop.asked], self.device)):
            raise StoppedError("Stopped after the last update and saved; run the same command to resume.")

    def learn(self, steps: Iterator[Batch]) -> _Update:
        """Make one update of the weights."""
        set_seed(int(self.seeds[self.update]), self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.rate_at(self.update)
        total, count, amount, stop = self.differentiate(steps)
        count = max(count, 1)  # a batch of masked language modelling may have no masked token
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        # Backward gives the mean over processes of summed, scaled losses; this factor turns it into the gradient of
        # the mean loss.
        norm = scale_and_clip_(gradients, world_size() / (count * self.precision.scale), self.plan.clip)
        loss, accepted = total / count, self.precision.accept(norm)
        if not math.isfinite(loss) or (accepted and not math.isfinite(norm)):
            raise LrpeError(self.handle_divergence(loss, norm))
        if accepted:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return _Update(loss, norm, amount, bool(stop))

    def differentiate(self, steps: Iterator[Batch]) -> list[float]:
        """Accumulate the gradients of one update.

        Returns:
            The total loss, its count, tokens or samples, and the number of processes asked to stop.
        """
        losses, handled = [], 0  # totals and counts alternate, and stay on the device so that no step waits for it
        for step in range(self.steps.accumulated):
            batch = self.contexts.cut(self.task, next(steps))
            amount, self.unit = measure(batch)
            with self.parallel.step(self.model, last=step == self.steps.accumulated - 1):
                loss = self.compute_loss(to_device(batch, str(self.device)))
                self.backward(loss.total)
            losses += [loss.total.detach(), loss.count.to(self.device)]
            handled += amount
        numbers = torch.stack(losses).tolist()
        return sum_over_processes([sum(numbers[::2]), sum(numbers[1::2]), handled, self.stop.asked], self.device)

    def compute_loss(self, batch: Batch) -> Loss:
        with self.precision.autocast(), self.contexts.enter():
            return self.task.loss(self.forward, batch)

    def backward(self, total: Tensor) -> None:
        scale = self.precision.scale
        (total if scale == 1 else total * scale).backward()

    def evaluate(self) -> None:
        """Evaluate the model and save a checkpoint."""
        with self.parallel.unsharded(self.model) as model, self.precision.autocast():
            self.metrics = evaluate(self.task, model, self.validation.epoch(0), str(self.device))
        value = self.metrics[self.task.metric]
        if self.best is None or improves(value, self.best[1], self.task.better):
            self.best = self.update, value
        self.report(**{f"validation {name}": figure for name, figure in self.metrics.items()})
        self.record.log(f"update {self.update}: {describe_metrics(self.metrics, '.4f')}")
        self.save()

    def save(self) -> None:
        """Write a checkpoint, unless this update already has one."""
        if self.saved == self.update:
            return
        self.record.sync()
        progress = Progress(self.update, self.best, dict(self.metrics), self.precision.state())
        save_checkpoint(self.history.path_of(self.update), self.model, self.bare, self.optimizer, progress)
        self.saved = self.update
        self.link_checkpoints()

    def link_checkpoints(self) -> None:
        run_on_first(lambda: self.history.link(self.update, None if self.best is None else self.best[0]))

    def report(self, **figures: float) -> None:
        self.record.add(update=self.update, **figures)
        for monitor in self.monitors:
            monitor.add(self.update, figures)

    def is_due(self, every: int) -> bool:
        return self.update % every == 0 or self.update == self.plan.updates

    def handle_divergence(self, loss: float, norm: float) -> str:
        """Record the divergence, withdraw the checkpoint that led to it, and return the error message."""
        before = [line["loss"] for line in read_metrics(self.record.folder)[0][-5:] if "loss" in line]
        epoch, shown = self.update // self.steps.updates_per_epoch, ", ".join(f"{each:.3f}" for each in before)
        self.record.add(update=self.update + 1, loss=loss, norm=norm, rate=self.rate, diverged=1)
        good = run_on_first(lambda: self.history.withdraw(self.update))
        way_out = (
            "Start a new run with a lower rate, or clip gradients."
            if good is None
            else f"Start a new run with a lower rate, or clip gradients, from the last good checkpoint: --from "
            f"{self.history.path_of(good.update)} --training.optimization.rate {self.plan.rate / 2:g}"
        )
        return (
            f"The loss became {loss} and its gradient norm {norm} at update {self.update + 1} (epoch {epoch}, "
            f"rate {self.rate:.2e}); the previous losses were {shown or 'not measured'}. The same command would fail "
            f"again. {way_out}"
        )

    @property
    def rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    @property
    def headline(self) -> dict[str, float]:
        return {self.task.metric: self.metrics[self.task.metric]} if self.metrics else {}


def improves(value: float, best: float | None, better: str) -> bool:
    """Return whether a metric beats the best so far.

    Any value beats NaN, which is the correlation of a model that predicts the same for all samples.
    """
    return best is None or not math.isfinite(best) or (value > best if better == "higher" else value < best)
