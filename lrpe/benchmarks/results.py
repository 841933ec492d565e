"""A result on the disk: JSON for machines and text for people, whole or not at all."""

import json
import tempfile
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError, require
from lrpe.whole import write_whole


def result_files(path: Path) -> tuple[Path, Path]:
    """PATH.json and PATH.txt; a PATH that ends in one of the two names both."""
    stem = path.with_suffix("") if path.suffix in (".json", ".txt") else path
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.txt")


def prepare(path: Path) -> None:
    """Make the folder that ``save`` will write to: better to fail before the measurement than after it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise LrpeError(f"Results are saved in {str(path.parent)!r}, which cannot be written: {error}.") from None


def save(path: Path, result: dict[str, Any], text: str) -> tuple[Path, Path]:
    """Write both files, each under a temporary name that is then renamed, so that no reader meets half a file."""
    files = result_files(path)
    for file, content in zip(files, (json.dumps(result, indent=2, ensure_ascii=False), text), strict=True):
        write_whole(file, f"{content}\n")
    return files


def read_result(path: Path) -> dict[str, Any]:
    """What ``save`` wrote as JSON."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LrpeError(f"The result {str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise LrpeError(f"A result is JSON, as --save writes it; {str(path)!r} is not: {error}.") from None
    known = isinstance(result, dict) and isinstance(result.get("benchmark"), str)
    require(known, f"A result names its benchmark, as --save writes it; {str(path)!r} names none.")
    return result
