"""Writing to a disk that may be full."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError
from torch.distributed.checkpoint.api import CheckpointException

from lrpe.errors import LrpeError
from lrpe.whole import write_whole


@contextmanager
def naming_failure(path: Path) -> Iterator[None]:
    """What cannot be written ends the run, with the reason and the way on."""
    try:
        yield
    except (OSError, SafetensorError, CheckpointException) as error:
        raise LrpeError(
            f"{path} could not be written: {reason(error)}. The last good checkpoint is kept: make room, and the same "
            "command goes on from it."
        ) from error


def reason(error: BaseException) -> str:
    """In words; of several processes' failures, the first."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return str(error).strip().rstrip(".") or type(error).__name__


class Lines:
    """A file that lines are added to, each in the system's hands before the next. It is opened once."""

    def __init__(self, file: Path):
        self.file = file
        self.stream: BinaryIO | None = None

    def add(self, text: str) -> None:
        with naming_failure(self.file):
            self.stream = self.stream or self.file.open("ab", buffering=0)
            rest = f"{text}\n".encode()
            while rest:  # a disk that is nearly full takes a part
                rest = rest[self.stream.write(rest) :]

    def read(self) -> list[str]:
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    def rewrite(self, lines: list[str]) -> None:
        self.close()
        with naming_failure(self.file):
            write_whole(self.file, "".join(f"{line}\n" for line in lines))

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None
