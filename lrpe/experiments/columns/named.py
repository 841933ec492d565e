"""Every column by name."""

from collections.abc import Callable

from lrpe.errors import unknown_name
from lrpe.experiments.columns.arena import ARENA
from lrpe.experiments.columns.glue import GLUE
from lrpe.experiments.columns.imagenet import imagenet
from lrpe.experiments.columns.language import LANGUAGE
from lrpe.experiments.columns.wikibook import wikibook
from lrpe.experiments.experiment import Experiment

Column = Callable[..., Experiment]  # of a method and a setting

COLUMNS: dict[str, Column] = {**LANGUAGE, "wikibook": wikibook, **GLUE, "imagenet": imagenet, **ARENA}


def find_column(name: str) -> Column:
    if name not in COLUMNS:
        raise unknown_name("column", name, COLUMNS)
    return COLUMNS[name]
