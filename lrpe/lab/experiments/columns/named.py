"""Look up columns by name."""

from collections.abc import Callable

from lrpe.errors import unknown_name
from lrpe.lab.experiments.columns.arena import ARENA
from lrpe.lab.experiments.columns.glue import GLUE
from lrpe.lab.experiments.columns.imagenet import imagenet
from lrpe.lab.experiments.columns.language import LANGUAGE
from lrpe.lab.experiments.columns.wikibook import wikibook
from lrpe.lab.experiments.experiment import Experiment

Column = Callable[..., Experiment]  # takes a method and a setting

COLUMNS: dict[str, Column] = {**LANGUAGE, "wikibook": wikibook, **GLUE, "imagenet": imagenet, **ARENA}


def find_column(name: str) -> Column:
    if name not in COLUMNS:
        raise unknown_name("column", name, COLUMNS)
    return COLUMNS[name]


def intended_data(experiment: Experiment) -> str:
    """Return the dataset of an experiment's column, or the experiment's own if the column is not registered."""
    if experiment.column not in COLUMNS:
        return experiment.data.name
    return COLUMNS[experiment.column](experiment.method, experiment.setting).data.name
