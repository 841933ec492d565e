"""The Experiment: everything that a run depends on, as one frozen value, and as files and the command line write it."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from lrpe.errors import LrpeError, require
from lrpe.lab.data import catalog
from lrpe.lab.data.dataset import HERE, HUB, Dataset
from lrpe.lab.experiments.methods import row
from lrpe.lab.training.record import Config, find_differing_keys, flatten, may_change
from lrpe.lab.training.settings import Training
from lrpe.models.configuration import LrpeConfig, complete_fields, upgrade_fields
from lrpe.schema import check_name, conform
from lrpe.serialization import read_yaml

Kind = Literal["language", "masked", "sentences", "sequence", "pair", "image", "tokens"]


@dataclass(frozen=True)
class Data:
    """A dataset of the catalogue and how to load it.

    Attributes:
        name: name of the dataset; see lrpe data list.
        path: folder or file with its official layout; None if not needed.
        hub: whether it is read from the Hugging Face hub.
        options: options of its loader.
    """

    name: str
    path: str | None = None
    hub: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        catalog.check_options(self.name, self.hub, self.options)

    def load(self) -> Dataset:
        return catalog.load(self.name, None if self.path is None else Path(self.path), self.hub, **self.options)

    def with_options(self, options: dict[str, Any]) -> "Data":
        return replace(self, options=self.options | options)


@dataclass(frozen=True)
class Checkpoint:
    """Weights that an experiment starts from.

    Attributes:
        path: folder of the checkpoint.
        weights: hash of its weights, which identifies them.
    """

    path: str
    weights: str


@dataclass(frozen=True)
class Experiment:
    """One training run: a row (method) in a column (task and data) at a scale, with one seed.

    Attributes:
        column: name of the column.
        method: the row.
        setting: fair, absolute or authors; see lrpe.lab.experiments.methods.
        scale: paper, medium, small, demo or smoke; see lrpe.lab.experiments.scale.
        kind: kind of task.
        data: training data of the column.
        stand_in: data that replace them on a machine without them.
        options: options of the task.
        architecture: fields of LrpeConfig; the data and the row override them.
        model: fields of LrpeConfig that override all others.
        variant: distinguishes experiments with the same column, method, setting and scale.
        label: short name of the changes made by hand, which is part of its folder's name.
        training: how it is trained.
        samples: size of the real data's training split, for estimates.
        scored: number of batches per split to score at the end; all if 0.
        lengths: multiples of the trained length at which the model is also scored.
        start: experiment whose weights it starts from.
        checkpoint: weights to start from instead, of a model of the same shape.
    """

    column: str
    method: str
    kind: Kind
    data: Data
    stand_in: Data
    architecture: dict[str, Any]
    training: Training
    setting: str = "fair"
    scale: str = "paper"
    variant: str = ""
    label: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 0
    scored: int = 0
    lengths: tuple[int, ...] = ()
    start: "Experiment | None" = None
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        for field_name in ("column", "method", "setting", "scale"):
            check_name(getattr(self, field_name), field_name)
        for field_name in ("variant", "label"):
            if getattr(self, field_name):
                check_name(getattr(self, field_name), field_name)
        require(
            not self.lengths or self.kind == "language",
            f"lengths must be empty, except for language models; got lengths={self.lengths} for {self.column}.",
        )

    def with_seed(self, seed: int) -> "Experiment":
        start = self.start and self.start.with_seed(seed)
        return replace(self, training=replace(self.training, seed=seed), start=start)

    def with_data(self, paths: dict[str, str]) -> "Experiment":
        """Return the experiment with data at these paths; without a path, with ``stand_in`` unless scale is paper.

        A path may name another dataset of the same kind: "citations:DIR" for lra-retrieval.
        """
        start = self.start and self.start.with_data(paths)
        source = paths.get(self.column) or paths.get(self.data.name)
        if source is None and self.scale == "paper":
            return replace(self, start=start)
        name, path = catalog.split_source(source or HERE)
        if name is not None:
            return replace(self, data=self._data_of(name, path), start=start)
        if path == HERE:
            return replace(self, data=self.stand_in, start=start)
        data = replace(self.data, hub=True) if path == HUB else replace(self.data, path=path)
        return replace(self, data=data, start=start)

    def _data_of(self, name: str, path: str) -> Data:
        """Return another dataset in place of the column's, with the same options."""
        kind, wanted = catalog.find(name).kind, catalog.find(self.data.name).kind
        require(
            kind == wanted,
            f"The data of {self.column} must be of kind {wanted}; got {name}, which is of kind {kind}. "
            "lrpe data list shows the kind of every dataset.",
        )
        return Data(name, None if path in (HERE, HUB) else path, path == HUB, self.data.options)

    @property
    def name(self) -> str:
        """The run's folder, relative to the folder of all runs."""
        group = "-".join(filter(None, (self.scale, self.setting, self.variant, self.label)))
        return f"{self.column}/{group}/{self.method.replace('*', '-times-')}-seed{self.training.seed}"


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
    return _completed(_DEFAULTS | experiment.architecture | decided | experiment.model)


def _completed(values: Config) -> Config:
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
        before = experiment.architecture | conform(values.get(ROW, {}), dict[str, Any], ROW) | experiment.model
    before = upgrade_fields({"format": 1} | conform(before, dict[str, Any], _RESOLVED))
    return _plain(experiment) | {_RESOLVED: _completed(_DEFAULTS | before)}


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
