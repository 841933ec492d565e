"""The Experiment: everything that a run depends on, as one frozen value."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from lrpe.errors import require
from lrpe.lab.data import catalog
from lrpe.lab.data.dataset import HERE, HUB, Dataset
from lrpe.lab.options import check_name
from lrpe.lab.training.settings import Training

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
        """Return the experiment with data at these paths; without a path, with ``stand_in`` unless scale is paper."""
        start = self.start and self.start.with_data(paths)
        path = paths.get(self.column) or paths.get(self.data.name) or (None if self.scale == "paper" else HERE)
        if path == HERE:
            return replace(self, data=self.stand_in, start=start)
        data = replace(self.data, hub=True) if path == HUB else replace(self.data, path=path)
        return replace(self, data=data, start=start)

    @property
    def name(self) -> str:
        """The run's folder, relative to the folder of all runs."""
        group = "-".join(filter(None, (self.scale, self.setting, self.variant, self.label)))
        return f"{self.column}/{group}/{self.method.replace('*', '-times-')}-seed{self.training.seed}"
