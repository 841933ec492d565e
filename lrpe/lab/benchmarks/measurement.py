"""What every benchmark hands back: its lines, where and how they were measured, as JSON and as text."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lrpe.lab.benchmarks.lines import Line, line_table
from lrpe.lab.benchmarks.process import describe_settings
from lrpe.lab.stamp import describe

TINY = "Quick: the sizes are tiny, so these figures say that it runs and nothing about speed."


@dataclass(frozen=True)
class Measurement(ABC):
    """``settings`` and ``stamp`` say how, where and of what; a quick one is of tiny sizes and is not judged."""

    benchmark: ClassVar[str]
    quick: bool
    rounds: int
    settings: dict[str, Any]
    stamp: dict[str, Any]
    lines: list[Line]

    @abstractmethod
    def title(self) -> list[str]:
        """What was measured, and what a figure is."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """What a reader of the tables should know."""

    def tables(self) -> list[str]:
        return [line_table(self.lines, judged=not self.quick)]

    def to_dict(self) -> dict[str, Any]:
        return {"benchmark": self.benchmark, **asdict(self)}

    def __str__(self) -> str:
        about = [*self.title(), describe(self.stamp), describe_settings(self.settings), *([TINY] if self.quick else [])]
        return "\n\n".join(filter(None, ["\n".join(about), *self.tables(), "\n".join(self.remarks())]))
