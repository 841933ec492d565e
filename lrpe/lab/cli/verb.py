"""What a verb is: a dataclass whose fields are its options and whose docstring is its help."""

from typing import ClassVar, Protocol


class Verb(Protocol):
    """``needs`` are the extras of lrpe without which the verb cannot run."""

    needs: ClassVar[tuple[str, ...]]

    def run(self) -> int:
        """Do it, and return the exit code."""
        ...
