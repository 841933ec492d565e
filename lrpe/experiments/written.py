"""Experiments as they are written in files and on the command line: nested dictionaries, and back, checked."""

import json
from dataclasses import asdict
from typing import Any

from lrpe.errors import LrpeError
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.methods import row
from lrpe.typed import conform, parse_yaml

DECIDED = "row"  # the fields of LrpeConfig that method and setting decide, beside those of the experiment


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain dictionaries and lists, as config.yaml has them, and what the method is today: one that is defined anew is
    another run."""
    decided = row(experiment.method, experiment.setting, experiment.architecture | experiment.model)
    return json.loads(json.dumps(asdict(experiment) | {DECIDED: decided}))


def from_dict(values: dict[str, Any]) -> Experiment:
    return conform({key: value for key, value in values.items() if key != DECIDED}, Experiment, "")


def changed(experiment: Experiment, *changes: dict[str, Any]) -> Experiment:
    """The experiment with nested changes, such as {"training": {"optimization": {"rate": 1e-3}}}."""
    values = to_dict(experiment)
    for change in changes:
        values = merged(values, change)
    return from_dict(values)


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = dict(values)
    for key, change in changes.items():
        deeper = isinstance(change, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], change) if deeper else change
    return found


def nested(key: str, text: str) -> dict[str, Any]:
    """``training.optimization.rate`` and ``1e-3`` as nested dictionaries; ``experiment.scored`` is ``scored``."""
    try:
        value = parse_yaml(text)
    except LrpeError as error:
        raise LrpeError(f"The value of --{key[:80]} cannot be read: {error}.") from error
    for part in reversed(key.removeprefix("experiment.").split(".")):
        value = {part: value}
    return value
