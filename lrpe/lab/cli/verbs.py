"""All verbs by name. A verb imports its dependencies when it runs, so that ``lrpe --help`` does not import torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lrpe.lab.cli.bench import BENCHMARKS
from lrpe.lab.cli.data import DataList, DataPrepare, DataShow
from lrpe.lab.cli.demo import RunDemo
from lrpe.lab.cli.evaluate import Evaluate
from lrpe.lab.cli.explore import Explore
from lrpe.lab.cli.export import Export
from lrpe.lab.cli.generate import Generate
from lrpe.lab.cli.report import Report
from lrpe.lab.cli.runs import Runs
from lrpe.lab.cli.table import MakeTable
from lrpe.lab.cli.train import Train
from lrpe.lab.cli.verb import Verb
from lrpe.lab.cli.verify import Verify


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
