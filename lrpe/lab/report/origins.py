"""The origins of a table's figures: the commits and machines that trained its runs, and the data they read.

A table may be reported long after its runs were trained, by another commit or on another machine.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.report.notes import label
from lrpe.lab.training.run_files import RunOrigin, read_run_origin

_DIGITS = 16  # of a hash, enough to tell any two contents apart


@dataclass(frozen=True)
class Origins:
    """The origins of a table's finished runs.

    Attributes:
        trained: number of runs by commit, processor and threads.
        content: hashes of the data's content by column and data; several if the runs read different data.
    """

    trained: dict[str, int]
    content: dict[str, list[str]]

    def describe(self) -> list[str]:
        """Return a sentence about the commits and one about the data, each only if there is something to say."""
        trained = "; ".join(
            f"{count} {'run' if count == 1 else 'runs'} {where}" for where, count in self.trained.items()
        )
        content = ", ".join(f"{name} {' and '.join(hashes)}" for name, hashes in self.content.items())
        sentences = {"Trained": trained, "Content hashes of the data": content}
        return [f"{name}: {sentence}." for name, sentence in sentences.items() if sentence]

    def as_data(self) -> dict[str, Any]:
        return {"trained": self.trained, "content": self.content}


def read_origins(experiments: Iterable[Experiment], runs: Path) -> Origins:
    """Read the origins of the experiments that have finished."""
    trained: Counter[str] = Counter()
    content: dict[str, list[str]] = {}
    finished = [each for each in experiments if (runs / each.name / "results.json").exists()]
    for experiment in finished:
        origin = read_run_origin(runs / experiment.name)
        trained[_describe_place(origin)] += 1
        found = str(origin.data.get("content", ""))[:_DIGITS]
        if found and found not in content.setdefault(label(experiment), []):
            content[label(experiment)].append(found)
    return Origins(dict(trained), content)


def _describe_place(origin: RunOrigin) -> str:
    commit = f"at commit {origin.commit[:12]}" if origin.commit else "at an unknown commit"
    changed = "with changes" if origin.dirty else ""
    threads = f"{origin.threads} {'thread' if origin.threads == 1 else 'threads'}" if origin.threads else ""
    return ", ".join(filter(None, (commit, changed, ", ".join(origin.gpus) or origin.processor, threads)))
