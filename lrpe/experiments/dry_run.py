"""What a table would train: each cell's configuration and cost, and how the columns depart from the paper."""

import inspect
from collections.abc import Sequence

from lrpe.aligned import in_columns
from lrpe.experiments.columns.named import find_column
from lrpe.experiments.cost import Cost, estimate
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.scale import find_scale


def describe_plan(cells: Sequence[Experiment], tflops: float) -> str:
    distinct = with_starts(cells)
    header = ["cell", "data", "layers × width", "length", "updates", "batch", "rate", "parameters", "tokens", "FLOPs"]
    costs = {name: estimate(cell) for name, cell in distinct.items()}
    lines = [described(cell, costs[name], tflops) for name, cell in distinct.items()]
    total = sum(cost.hours(tflops) for cost in costs.values())
    table = in_columns([*header, f"hours at {tflops:g} TFLOP/s"], lines, left=2)
    notes = "\n\n".join(departures(distinct.values()))
    return f"{table}\n\n{len(distinct)} runs, {total:,.2f} hours at {tflops:g} TFLOP/s.\n\n{notes}\n"


def with_starts(cells: Sequence[Experiment]) -> dict[str, Experiment]:
    """Each experiment once, and before it the one that it begins with."""
    found: dict[str, Experiment] = {}
    for cell in cells:
        for each in filter(None, (cell.start, cell)):
            found.setdefault(each.name, each)
    return found


def described(cell: Experiment, cost: Cost, tflops: float) -> list[str]:
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
        f"{cost.hours(tflops):.2g}",
    ]


def departures(cells) -> list[str]:
    """The notes of each column and each scale, once."""
    notes = {}
    for cell in cells:
        notes[cell.column] = inspect.getdoc(find_column(cell.column))
        notes[f"scale {cell.scale}"] = inspect.getdoc(find_scale(cell.scale))
    return [f"{name}: {text}" for name, text in notes.items()]
