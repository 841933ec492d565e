"""How fast this machine trains: measured for a second, so that a dry run can say how long it would take."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from lrpe.lab.experiments.build import build_config, model_class
from lrpe.lab.experiments.columns.language import stdlib
from lrpe.lab.experiments.cost import estimate, vocabulary
from lrpe.lab.experiments.scale import find_scale
from lrpe.lab.training.processes import local_device

SCALES = {"cpu": "small", "cuda": "paper"}  # a model that is large enough to keep the device busy, and no larger


@dataclass(frozen=True)
class Speed:
    """10¹² operations per second, and where the number is from."""

    tflops: float
    source: str


def measure_speed(seconds: float = 1.0) -> Speed:
    """Time forward and backward passes of a language model: what training reaches here, not what a product does."""
    device = local_device()
    cell = find_scale(SCALES[device.type])(stdlib("type2"))
    model: Any = model_class(cell)(build_config(cell, vocabulary(cell))).to(device)
    plan, length = cell.training.optimization, cell.data.options["length"]
    batch = min(plan.batch, 8)
    ids = torch.randint(256, (batch, length), device=device)
    flops = estimate(cell).flops / plan.updates * batch / plan.batch  # of one pass
    took = _time(lambda: model(input_ids=ids, labels=ids, use_cache=False).loss.backward(), seconds)
    layers, width = model.config.num_hidden_layers, model.config.hidden_size
    where = f"threads: {torch.get_num_threads()}" if device.type == "cpu" else torch.cuda.get_device_name(device)
    source = f"measured here ({where}) for {seconds:g} s on a language model with {layers} layers of width {width}"
    return Speed(flops / took / 1e12, source)


def _time(run: Any, seconds: float) -> float:
    """Seconds per run, after one that is not counted."""
    run()
    _wait()
    begun, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - begun < seconds:
        run()
        _wait()
        runs += 1
    return (time.perf_counter() - begun) / runs


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def describe_time(seconds: float) -> str:
    """Return a time in the unit that a person would use.

    >>> [describe_time(seconds) for seconds in (0.2, 45, 600, 9000, 400_000)]
    ['under 1 s', '45 s', '10 min', '2.5 h', '4.6 days']
    """
    if seconds < 1:
        return "under 1 s"
    for unit, size, least in (("days", 86400, 2 * 86400), ("h", 3600, 2 * 3600), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / size:,.2g} {unit}" if seconds / size < 10 else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
