"""Build the task and the model of an experiment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lrpe.errors import LrpeError, require
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.experiments.experiment import Checkpoint, Experiment
from lrpe.lab.experiments.methods import row
from lrpe.lab.tasks.image_classification import PLAIN, ImageClassification, Mixing
from lrpe.lab.tasks.language_modelling import LanguageModelling, MaskedLanguageModelling
from lrpe.lab.tasks.sentence_classification import SentenceClassification
from lrpe.lab.tasks.sequence_classification import PairClassification, SequenceClassification
from lrpe.lab.tasks.task import Task
from lrpe.lab.tasks.token_prediction import TokenPrediction
from lrpe.lab.training.checkpoint import WEIGHTS, load_weights
from lrpe.models.configuration import LrpeConfig
from lrpe.models.saved import find_model, quietly
from lrpe.schema import conform_options


def build_task(experiment: Experiment) -> Task:
    """Return the experiment's task, with its data loaded."""
    task, what = CLASSES[experiment.kind], f"the task of {experiment.column}"
    options = conform_options(task, what, _task_options(experiment, what), positional=1)  # the data come first
    return task(experiment.data.load(), **options)


def _task_options(experiment: Experiment, what: str) -> dict[str, Any]:
    """Return the experiment's options as arguments of its task."""
    options = dict(experiment.options)
    if experiment.kind == "sentences":
        options["tokenizer"] = _tokens_of_start(experiment)
    if experiment.kind == "image":
        copies = options.pop("copies", 1)
        return {"mixing": replace(PLAIN, **conform_options(Mixing, what, options)), "copies": copies}
    return options


def _tokens_of_start(experiment: Experiment) -> Tokenizer:
    """Return the tokeniser of the masked language model that the experiment starts from."""
    if experiment.start is None:
        raise LrpeError(
            f"{experiment.column} needs start, the experiment of the masked language model whose tokens it reads."
        )
    return build_task(experiment.start).tokenizer  # type: ignore[attr-defined]


CLASSES: dict[str, Any] = {  # the task class per kind
    "language": LanguageModelling,
    "masked": MaskedLanguageModelling,
    "sentences": SentenceClassification,
    "sequence": SequenceClassification,
    "pair": PairClassification,
    "image": ImageClassification,
    "tokens": TokenPrediction,
}


def model_class(experiment: Experiment) -> type[nn.Module]:
    return CLASSES[experiment.kind].model_class


def build_config(experiment: Experiment, fields: dict[str, Any]) -> LrpeConfig:
    """Merge the fields of the architecture, the data, the row and the experiment; later ones override."""
    base = experiment.architecture | fields
    rows = row(experiment.method, experiment.setting, base | experiment.model)
    merged = base | rows | experiment.model
    if "encoding" in experiment.model and "encoding" in rows:
        merged["encoding"] = _change_encoding(rows["encoding"], experiment.model["encoding"])
    return LrpeConfig(**merged)


def _change_encoding(rows: Any, change: Any) -> Any:
    """Return the row's encoding with some fields changed: "type2" and {"base": 100} are Type 2 with that base.

    A name, or a dictionary that has one or has both P and Λ, is an encoding of its own and replaces the row's.
    """
    whole = not isinstance(change, dict) or "name" in change or {"basis", "matrix"} <= change.keys()
    if whole or isinstance(rows, list):
        return change
    return ({"name": rows} if isinstance(rows, str) else rows) | change


def build_model(experiment: Experiment, task: Task, start: Path | None = None) -> nn.Module:
    """Return a new model with the experiment's seed; its trunk is loaded from ``start`` if given."""
    torch.manual_seed(experiment.training.seed)
    config = build_config(experiment, task.fields())
    if start is None:
        return task.model_class(config)
    with quietly():
        return task.model_class.from_pretrained(start, config=config)  # type: ignore[attr-defined]


def find_checkpoint(source: Path) -> Checkpoint:
    """Return the checkpoint in a folder, or a run's ``best`` or else ``last``."""
    folder = find_model(source).resolve()  # a link may point elsewhere later
    require((folder / WEIGHTS).is_file(), f"A checkpoint must contain {WEIGHTS}; {str(folder)!r} does not.")
    return Checkpoint(str(folder), hash_files(folder / WEIGHTS))


def load_checkpoint_weights(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Load a checkpoint's weights into a new model; raise ``LrpeError`` if they have changed since it was chosen."""
    folder = Path(checkpoint.path)
    require(
        hash_files(folder / WEIGHTS) == checkpoint.weights,
        f"The weights in {str(folder)!r} have changed since the run was configured. Choose the checkpoint again.",
    )
    load_weights(folder, model)


def lengthen(experiment: Experiment, times: int) -> Experiment:
    """Return the experiment with windows ``times`` times as long, which are also scored by octave of positions."""
    length = experiment.data.options["length"]
    longer = experiment.data.with_options({"length": times * length})
    return replace(experiment, data=longer, options=experiment.options | {"octaves": length})
