"""A model measured on a whole split, by one process or by several."""

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lrpe.errors import require
from lrpe.lab.tasks.task import Batch, Task


@torch.no_grad()
def evaluate(
    task: Task, model: nn.Module, batches: Iterable[Batch | None], device: str | None = None
) -> dict[str, float]:
    """The metrics of all batches together. With several processes each sees its own, and all get the metrics of all."""
    was_training = model.training
    model.eval()
    try:
        parts = [task.observe(model, to_device(batch, device)) for batch in batches if batch is not None]
    finally:
        model.train(was_training)
    mine = {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]} if parts else {}
    observed = _gather(mine)
    require(len(observed) > 0, "A split to evaluate on has one sample or more; got none.")
    return task.metrics(observed)


def _gather(mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What all processes observed."""
    if not dist.is_initialized():
        return dict(mine)
    everyone: list[dict[str, Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, dict(mine))
    some = [part for part in everyone if part]
    return {name: torch.cat([part[name] for part in some]) for name in some[0]} if some else {}


def to_device(batch: Batch, device: str | None) -> Batch:
    return batch if device is None else {name: tensor.to(device) for name, tensor in batch.items()}


_LARGEST = 1e6  # a figure above it says only that a model is far from learning, such as e^39, the perplexity of a word


def describe_metrics(metrics: Mapping[str, float | None], form: str = ",.4g") -> str:
    """Return metrics in a line; ``form`` is how a figure is written.

    >>> describe_metrics({"perplexity": 289.912, "word_perplexity": 101675897166494272.0, "bits_per_byte": 8.182})
    'perplexity 289.9, word_perplexity over 1,000,000, bits_per_byte 8.182'
    """
    return ", ".join(f"{name} {_describe(figure, form)}" for name, figure in metrics.items())


def _describe(figure: float | None, form: str) -> str:
    if figure is None:  # what JSON has in place of a number that is not finite
        return "not finite"
    if isinstance(figure, int):  # a count, of parameters for one
        return f"{figure:,}"
    return f"over {_LARGEST:,.0f}" if figure > _LARGEST else f"{figure:{form}}"
