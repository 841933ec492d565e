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


def write_all(stream: BinaryIO, data: bytes) -> None:
    """A disk that is nearly full takes a part, and only then refuses."""
    while data:
        data = data[stream.write(data) :]


class Growing:
    """A file that is added to. It is opened once, and what is written is in the system's hands at once."""

    def __init__(self, file: Path):
        self.file = file
        self.stream: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        with naming_failure(self.file):
            self.stream = self.stream or self.file.open("ab", buffering=0)
            write_all(self.stream, data)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


class Lines(Growing):
    """A file of text."""

    def add(self, line: str) -> None:
        self.write(f"{line}\n".encode())

    def read(self) -> list[str]:
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    def rewrite(self, lines: list[str]) -> None:
        self.close()
        with naming_failure(self.file):
            write_whole(self.file, "".join(f"{line}\n" for line in lines))
