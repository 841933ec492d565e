"""All verbs by name. A verb imports its dependencies when it runs, so that ``lrpe --help`` does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from lrpe.lab.cli.bench import BENCHMARKS
from lrpe.lab.cli.data import DataList, DataPrepare, DataShow
from lrpe.lab.cli.doctor import Doctor
from lrpe.lab.cli.encodings import Explore, Verify
from lrpe.lab.cli.models import Export, Generate
from lrpe.lab.cli.runs import Evaluate, Report, Runs
from lrpe.lab.cli.table import MakeTable, RunDemo
from lrpe.lab.cli.train import Train


class Verb(Protocol):
    """A command: a dataclass whose fields are its options and whose docstring is its help.

    ``needs`` lists the extras of lrpe that it requires.
    """

    needs: ClassVar[tuple[str, ...]]

    def run(self) -> int:
        """Run the command and return the exit code."""
        ...


@dataclass(frozen=True)
class Group:
    """A verb with subcommands, such as ``lrpe bench encoding``."""

    summary: str
    verbs: Mapping[str, type[Verb]]


VERBS: dict[str, type[Verb] | Group] = {
    "demo": RunDemo,
    "table": MakeTable,
    "train": Train,
    "evaluate": Evaluate,
    "generate": Generate,
    "runs": Runs,
    "report": Report,
    "doctor": Doctor,
    "verify": Verify,
    "data": Group("List, show and prepare the datasets.", {"list": DataList, "show": DataShow, "prepare": DataPrepare}),
    "explore": Explore,
    "export": Export,
    "bench": Group("Measure speed relative to a limit of the machine and to other implementations.", BENCHMARKS),
}


def extras_for(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the known part of the command that was typed, and the extras that it needs besides the parser's."""
    words = [word for word in argv if not word.startswith("-")]
    verb = VERBS.get(words[0]) if words else None
    if isinstance(verb, Group):
        inner = verb.verbs.get(words[1]) if len(words) > 1 else None
        return (f"lrpe {words[0]}", ()) if inner is None else (f"lrpe {words[0]} {words[1]}", inner.needs)
    return ("lrpe", ()) if verb is None else (f"lrpe {words[0]}", verb.needs)
