"""Convert experiments to and from nested dictionaries, as files and the command line write them, with checks."""

import json
import re
from dataclasses import asdict, replace
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import row
from lrpe.lab.training.record import Config, find_differing_keys, flatten, may_change
from lrpe.models.configuration import LrpeConfig, complete_fields, upgrade_fields
from lrpe.schema import conform
from lrpe.serialization import read_yaml

_RESOLVED = "resolved"  # all fields of LrpeConfig except those set by the data, after method and setting
ROW = "row"  # written by earlier versions instead: the fields set by method and setting
_DEFAULTS = {
    name: parameter.default
    for name, parameter in signature(LrpeConfig.__init__).parameters.items()
    if parameter.default is not Parameter.empty
}
_LONGEST_LABEL = 70  # characters
# Keys that a folder's name already contains.
_NAMED = {"column", "method", "setting", "scale", "variant", "label", "training.seed"}


def to_dict(experiment: Experiment) -> Config:
    """Return plain dictionaries and lists, as in config.yaml, with the resolved model.

    A method whose definition changes is then another run.
    """
    decided = row(experiment.method, experiment.setting, experiment.architecture | experiment.model)
    return _plain(experiment) | {_RESOLVED: _resolve(experiment, decided)}


def _plain(experiment: Experiment) -> Config:
    return json.loads(json.dumps(asdict(experiment)))


def _resolve(experiment: Experiment, decided: Config) -> Config:
    values = _DEFAULTS | experiment.architecture | decided | experiment.model
    return json.loads(json.dumps(values | complete_fields(values)))


def from_dict(values: Config) -> Experiment:
    """Return the experiment of a config.yaml; missing fields have their defaults."""
    return conform({key: value for key, value in values.items() if key not in (_RESOLVED, ROW)}, Experiment, "")


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run; raise ``LrpeError`` if its config.yaml is missing or damaged."""
    file = folder / "config.yaml"
    try:
        return from_dict(read_yaml(file, dict[str, Any]))
    except LrpeError as error:
        raise LrpeError(f"{str(folder)!r} is not a readable run: {error}") from error


def read_changes(file: Path) -> Config:
    """Return the keys of a YAML file, such as the config.yaml of a run, without the derived ones."""
    return {key: value for key, value in read_yaml(file, dict[str, Any]).items() if key not in (_RESOLVED, ROW)}


def upgrade(values: Config) -> Config:
    """Return a config.yaml of an earlier version in today's form: new fields have their defaults."""
    experiment = from_dict(values)
    before = values.get(_RESOLVED)
    if before is None:
        before = _resolve(experiment, conform(values.get(ROW, {}), dict[str, Any], ROW))
    before = upgrade_fields({"format": 1} | conform(before, dict[str, Any], _RESOLVED))
    return _plain(experiment) | {_RESOLVED: json.loads(json.dumps(_DEFAULTS)) | before}


def apply_changes(experiment: Experiment, changes: Config) -> Experiment:
    """Return the experiment with nested changes, such as {"training": {"optimization": {"rate": 1e-3}}}.

    If the changes affect training, a label makes its folder differ, unless they set a variant or label themselves.
    """
    after = conform(merge(_plain(experiment), changes), Experiment, "")
    return after if changes.get("variant") or changes.get("label") else _tell_apart(experiment, after)


def _tell_apart(before: Experiment, after: Experiment) -> Experiment:
    """Return the changed experiment, with a label that distinguishes it if the changes affect training."""
    if before.start is not None and after.start is not None:
        after = replace(after, start=_tell_apart(before.start, after.start))
    old, new = flatten(_plain(before)), flatten(_plain(after))
    same_data = before.data.name == after.data.name
    keys = [key for key in find_differing_keys(old, new) if key not in _NAMED and not may_change(key)]
    labelled = {key: new.get(key, "absent") for key in keys if same_data or not key.startswith("data.")}
    label = "-".join(filter(None, (before.label, _label_of(labelled))))
    if len(label) > _LONGEST_LABEL:
        label = f"{label[: _LONGEST_LABEL - 9].rstrip('-.')}-{_digest(label)}"
    return replace(after, label=label)


def _label_of(changes: Config) -> str:
    """Return a short, readable and unique name of changes: {"model.decay": None} -> "decay-null-5f0c9d2a"."""
    if not changes:
        return ""
    words = [f"{key.rpartition('.')[2]}-{json.dumps(value)[:14]}" for key, value in changes.items()]
    readable = re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-.")
    return f"{readable[:40].rstrip('-.')}-{_digest(changes)}"


def _digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def merge(values: Config, changes: Config) -> Config:
    """Return nested values with nested changes; a change that is not a dictionary replaces the old value."""
    merged = dict(values)
    for key, change in changes.items():
        deeper = isinstance(change, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], change) if deeper else change
    return merged
