"""The protocol of a verb: a dataclass whose fields are its options and whose docstring is its help."""

from typing import ClassVar, Protocol


class Verb(Protocol):
    """A command. ``needs`` lists the extras of lrpe that it requires."""

    needs: ClassVar[tuple[str, ...]]

    def run(self) -> int:
        """Run the command and return the exit code."""
        ...
