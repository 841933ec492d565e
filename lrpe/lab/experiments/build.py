"""From an experiment to what a run needs: its task, and its model."""

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
from lrpe.lab.options import conform_options
from lrpe.lab.tasks.image_classification import PLAIN, ImageClassification, Mixing
from lrpe.lab.tasks.language_modelling import LanguageModelling
from lrpe.lab.tasks.masked_language_modelling import MaskedLanguageModelling
from lrpe.lab.tasks.sentence_classification import SentenceClassification
from lrpe.lab.tasks.sequence_classification import PairClassification, SequenceClassification
from lrpe.lab.tasks.task import Task
from lrpe.lab.training.checkpoint import WEIGHTS, load_weights
from lrpe.models.configuration import LrpeConfig
from lrpe.models.saved import find_model, quietly


def build_task(experiment: Experiment) -> Task:
    """What the experiment learns, its data loaded."""
    task, what = CLASSES[experiment.kind], f"the task of {experiment.column}"
    options = conform_options(task, what, task_options(experiment, what), given=1)  # the data is given
    return task(experiment.data.load(), **options)


def task_options(experiment: Experiment, what: str) -> dict[str, Any]:
    """The experiment's options as the task takes them."""
    options = dict(experiment.options)
    if experiment.kind == "sentences":
        options["tokenizer"] = tokens_of_start(experiment)
    if experiment.kind == "image":
        copies = options.pop("copies", 1)
        return {"mixing": replace(PLAIN, **conform_options(Mixing, what, options)), "copies": copies}
    return options


def tokens_of_start(experiment: Experiment) -> Tokenizer:
    """Sentences are read in the tokens of the masked language model that the experiment begins with."""
    if experiment.start is None:
        raise LrpeError(f"{experiment.column} begins with a masked language model, whose tokens it reads: start.")
    return build_task(experiment.start).tokenizer  # type: ignore[attr-defined]


CLASSES: dict[str, Any] = {  # the task of each kind
    "language": LanguageModelling,
    "masked": MaskedLanguageModelling,
    "sentences": SentenceClassification,
    "sequence": SequenceClassification,
    "pair": PairClassification,
    "image": ImageClassification,
}


def model_class(experiment: Experiment) -> type[nn.Module]:
    return CLASSES[experiment.kind].model_class


def build_config(experiment: Experiment, fields: dict[str, Any]) -> LrpeConfig:
    """The architecture's fields, then those that the data decides, the row's, and those of the experiment itself."""
    base = experiment.architecture | fields
    rows = row(experiment.method, experiment.setting, base | experiment.model)
    return LrpeConfig(**base | rows | experiment.model)


def build_model(experiment: Experiment, task: Task, start: Path | None = None) -> nn.Module:
    """Return a new model from the experiment's seed; its trunk is that of ``start`` if it begins with one."""
    torch.manual_seed(experiment.training.seed)
    config = build_config(experiment, task.fields())
    if start is None:
        return task.model_class(config)
    with quietly():
        return task.model_class.from_pretrained(start, config=config)  # type: ignore[attr-defined]


def find_checkpoint(source: Path) -> Checkpoint:
    """Return the checkpoint of a folder, or of a run's ``best`` or ``last``."""
    folder = find_model(source).resolve()  # a link may lead elsewhere tomorrow
    require((folder / WEIGHTS).is_file(), f"A checkpoint has its weights in {WEIGHTS}; {str(folder)!r} has none.")
    return Checkpoint(str(folder), hash_files(folder / WEIGHTS))


def load_checkpoint_weights(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the weights of a checkpoint into a new model; ``LrpeError`` if they are not those that were chosen."""
    folder = Path(checkpoint.path)
    require(
        hash_files(folder / WEIGHTS) == checkpoint.weights,
        f"The weights in {str(folder)!r} are not those that the run was to begin with. Choose the checkpoint again.",
    )
    load_weights(folder, model)


def lengthen(experiment: Experiment, times: int) -> Experiment:
    """Return the experiment with windows ``times`` as long."""
    options = experiment.data.options
    return replace(experiment, data=experiment.data.with_options({"length": times * options["length"]}))
