"""Every verb by name. A verb imports what it needs when it runs, so that ``lrpe --help`` does not import torch."""

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
    """Verbs under a verb, such as ``lrpe bench encoding``."""

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
    "bench": Group("Measure speed, as ratios to a limit of the machine and beside peers.", BENCHMARKS),
}


def extras_for(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the command that was typed, as far as it is known, and the extras that it needs beside the parser's."""
    words = [word for word in argv if not word.startswith("-")]
    found = VERBS.get(words[0]) if words else None
    if isinstance(found, Group):
        inner = found.verbs.get(words[1]) if len(words) > 1 else None
        return (f"lrpe {words[0]}", ()) if inner is None else (f"lrpe {words[0]} {words[1]}", inner.needs)
    return ("lrpe", ()) if found is None else (f"lrpe {words[0]}", found.needs)
