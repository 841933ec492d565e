"""Experiments as they are written in files and on the command line: nested dictionaries, and back, checked."""

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
from lrpe.lab.training.same_run import Config, find_differing_keys, flatten, may_change
from lrpe.models.configuration import LrpeConfig
from lrpe.schema import conform
from lrpe.serialization import read_yaml

RESOLVED = "resolved"  # all fields of LrpeConfig, beside those that the data decide: what method and setting come to
ROW = "row"  # what stood in its place before: the fields that method and setting decide
DEFAULTS = {
    name: parameter.default
    for name, parameter in signature(LrpeConfig.__init__).parameters.items()
    if parameter.default is not Parameter.empty
}
LONGEST_LABEL = 70  # characters
# What a folder's name tells already.
NAMED = {"column", "method", "setting", "scale", "variant", "label", "training.seed"}


def to_dict(experiment: Experiment) -> Config:
    """Return plain dictionaries and lists, as config.yaml has them, with the model that the experiment comes to today:
    a method that is defined anew is another run."""
    decided = row(experiment.method, experiment.setting, experiment.architecture | experiment.model)
    return _plain(experiment) | {RESOLVED: _resolve(experiment, decided)}


def _plain(experiment: Experiment) -> Config:
    return json.loads(json.dumps(asdict(experiment)))


def _resolve(experiment: Experiment, decided: Config) -> Config:
    return json.loads(json.dumps(DEFAULTS | experiment.architecture | decided | experiment.model))


def from_dict(values: Config) -> Experiment:
    """Return the experiment of a config.yaml; a field that it lacks has its default."""
    return conform({key: value for key, value in values.items() if key not in (RESOLVED, ROW)}, Experiment, "")


def read_experiment(folder: Path) -> Experiment:
    """Return the experiment of a run; ``LrpeError`` if its config.yaml is missing or damaged."""
    file = folder / "config.yaml"
    try:
        return from_dict(read_yaml(file, dict[str, Any]))
    except LrpeError as error:
        raise LrpeError(f"{str(folder)!r} is not a run that can be read: {error}") from error


def read_changes(file: Path) -> Config:
    """Return the keys of a YAML file, such as the config.yaml of a run, without those that follow from the others."""
    return {key: value for key, value in read_yaml(file, dict[str, Any]).items() if key not in (RESOLVED, ROW)}


def upgrade(values: Config) -> Config:
    """Return a config.yaml that an earlier version wrote as this one would have: new fields have their defaults."""
    experiment = from_dict(values)
    before = values.get(RESOLVED)
    if before is None:
        before = _resolve(experiment, conform(values.get(ROW, {}), dict[str, Any], ROW))
    return _plain(experiment) | {RESOLVED: json.loads(json.dumps(DEFAULTS)) | conform(before, dict[str, Any], RESOLVED)}


def apply_changes(experiment: Experiment, changes: Config) -> Experiment:
    """Return the experiment with nested changes, such as {"training": {"optimization": {"rate": 1e-3}}}.

    If it learns differently it has a label, so that its folder is another, unless a change names a variant itself.
    """
    found = conform(merge(_plain(experiment), changes), Experiment, "")
    return found if changes.get("variant") or changes.get("label") else tell_apart(experiment, found)


def tell_apart(before: Experiment, after: Experiment) -> Experiment:
    """Return the changed experiment with a label that tells it from the one before, if it learns differently."""
    if before.start is not None and after.start is not None:
        after = replace(after, start=tell_apart(before.start, after.start))
    old, new = flatten(_plain(before)), flatten(_plain(after))
    same_data = before.data.name == after.data.name
    keys = [key for key in find_differing_keys(old, new) if key not in NAMED and not may_change(key)]
    told = {key: new.get(key, "absent") for key in keys if same_data or not key.startswith("data.")}
    label = "-".join(filter(None, (before.label, label_of(told))))
    if len(label) > LONGEST_LABEL:
        label = f"{label[: LONGEST_LABEL - 9].rstrip('-.')}-{_digest(label)}"
    return replace(after, label=label)


def label_of(changes: Config) -> str:
    """Return a short name of changes, readable and their own: {"model.decay": None} -> "decay-null-5f0c9d2a"."""
    if not changes:
        return ""
    words = [f"{key.rpartition('.')[2]}-{json.dumps(value)[:14]}" for key, value in changes.items()]
    readable = re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-.")
    return f"{readable[:40].rstrip('-.')}-{_digest(changes)}"


def _digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def merge(values: Config, changes: Config) -> Config:
    """Return nested values with nested changes; a change that is no dictionary replaces what it names."""
    found = dict(values)
    for key, change in changes.items():
        deeper = isinstance(change, dict) and isinstance(found.get(key), dict)
        found[key] = merge(found[key], change) if deeper else change
    return found
