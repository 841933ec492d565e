"""Files of a run that grow by appending, on a disk that may be full."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from lrpe import atomic
from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError, require


def naming_failure(path: Path) -> AbstractContextManager[None]:
    """As ``atomic.naming_failure``, for weights too."""
    return atomic.naming_failure(path, SafetensorError)


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write all of ``data``. A nearly full disk accepts a part before it fails, so one ``write`` is not enough."""
    while data:
        data = data[stream.write(data) :]


def _open_here(file: Path) -> int:
    """Open a file for appending without following links or blocking on a pipe: the folder may be untrusted."""
    unless = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a reader would block
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | unless, 0o666)


class AppendFile:
    """A file opened once for appending, unbuffered: what was written survives the death of this process."""

    def __init__(self, file: Path):
        self.file = file
        self.stream: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        with naming_failure(self.file):
            self.stream = self.stream or os.fdopen(_open_here(self.file), "ab", buffering=0)
            write_all(self.stream, data)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


class LineFile(AppendFile):
    """A text file of lines."""

    def add(self, line: str) -> None:
        self.write(f"{line}\n".encode())

    def read(self) -> list[str]:
        """Return the lines. Invalid UTF-8 is replaced, so that it damages one line and not the file."""
        if not self.file.exists():
            return []
        require(self.file.is_file(), f"{str(self.file)!r} is not a file. Move it away and rerun to resume.")
        try:
            return self.file.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
        except OSError as error:
            raise LrpeError(f"{str(self.file)!r} cannot be read: {error.strerror}.") from error

    def rewrite(self, lines: list[str]) -> None:
        self.close()
        with naming_failure(self.file):
            write_atomically(self.file, "".join(f"{line}\n" for line in lines))
