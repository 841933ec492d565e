"""Describe what a table would train: each cell's configuration and cost, and departures from the paper."""

import inspect
from collections.abc import Sequence

from lrpe.lab.aligned import in_columns
from lrpe.lab.experiments.columns.named import find_column
from lrpe.lab.experiments.cost import Cost, Speed, describe_time, estimate
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.scale import find_scale


def describe_plan(cells: Sequence[Experiment], speed: Speed) -> str:
    """Return a table of the runs, their time at this speed, and the notes of their columns."""
    distinct = _with_starts(cells)
    header = ["cell", "data", "layers × width", "length", "updates", "batch", "rate", "parameters", "tokens", "FLOPs"]
    costs = {name: estimate(cell) for name, cell in distinct.items()}
    lines = [_describe(cell, costs[name], speed) for name, cell in distinct.items()]
    total = describe_time(sum(cost.seconds(speed.tflops) for cost in costs.values()))
    table = in_columns([*header, "time"], lines, left=2)
    times = f"Times are at {speed.tflops:.3g} TFLOP/s, {speed.source}."
    notes = "\n\n".join(departures(distinct.values()))
    runs = f"{len(distinct)} run{'' if len(distinct) == 1 else 's'}"
    return f"{table}\n\n{runs}, {total} in all. {times}\n\n{notes}\n"


def _with_starts(cells: Sequence[Experiment]) -> dict[str, Experiment]:
    """Return each experiment once by name, preceded by the one whose weights it starts from."""
    distinct: dict[str, Experiment] = {}
    for cell in cells:
        for each in filter(None, (cell.start, cell)):
            distinct.setdefault(each.name, each)
    return distinct


def _describe(cell: Experiment, cost: Cost, speed: Speed) -> list[str]:
    plan, base = cell.training.optimization, cell.architecture | cell.model
    return [
        cell.name,
        cell.data.name,
        f"{base['num_hidden_layers']} × {base['hidden_size']}",
        str(cell.data.options.get("length") or base.get("max_position_embeddings", "")),
        f"{plan.epochs:g} epochs" if plan.epochs else f"{plan.updates:,}",
        str(plan.batch),
        f"{plan.rate:g}",
        f"{cost.parameters / 1e6:.2f} M",
        f"{cost.tokens:.2g}",
        f"{cost.flops:.2g}",
        describe_time(cost.seconds(speed.tflops)),
    ]


def departures(cells) -> list[str]:
    """Return the notes of each column and each scale, once."""
    notes = {}
    for cell in cells:
        notes[cell.column] = inspect.getdoc(find_column(cell.column))
        notes[f"scale {cell.scale}"] = inspect.getdoc(find_scale(cell.scale))
    return [f"{name}: {text}" for name, text in notes.items()]
