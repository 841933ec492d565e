"""Every column by name."""

from collections.abc import Callable

from lrpe.errors import unknown_name
from lrpe.lab.experiments.columns.arena import ARENA
from lrpe.lab.experiments.columns.glue import GLUE
from lrpe.lab.experiments.columns.imagenet import imagenet
from lrpe.lab.experiments.columns.language import LANGUAGE
from lrpe.lab.experiments.columns.wikibook import wikibook
from lrpe.lab.experiments.experiment import Experiment

Column = Callable[..., Experiment]  # of a method and a setting

COLUMNS: dict[str, Column] = {**LANGUAGE, "wikibook": wikibook, **GLUE, "imagenet": imagenet, **ARENA}


def find_column(name: str) -> Column:
    if name not in COLUMNS:
        raise unknown_name("column", name, COLUMNS)
    return COLUMNS[name]


def intended_data(experiment: Experiment) -> str:
    """Return the dataset that an experiment's column is named for; a column that is not registered has its own."""
    if experiment.column not in COLUMNS:
        return experiment.data.name
    return COLUMNS[experiment.column](experiment.method, experiment.setting).data.name
