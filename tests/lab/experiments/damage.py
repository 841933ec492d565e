"""What can befall the files of a run: each kind of damage, as a function of a file."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[Path], None]


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink()


def _write(content: bytes) -> Damage:
    def damage(file: Path) -> None:
        _remove(file)
        file.write_bytes(content)

    return damage


def _cut(file: Path) -> None:
    content = file.read_bytes()
    _remove(file)
    file.write_bytes(content[: len(content) // 2])


def _zeros(file: Path) -> None:
    size = file.stat().st_size
    _remove(file)
    file.write_bytes(bytes(size))


def _as_folder(file: Path) -> None:
    _remove(file)
    file.mkdir()


def _as_pipe(file: Path) -> None:
    _remove(file)
    os.mkfifo(file)


def _as_loop(file: Path) -> None:
    _remove(file)
    file.symlink_to(file.name)


def _every_value(change: Callable[[Any], Any]) -> Damage:
    """Change each value of a file of JSON, YAML or lines of JSON, and keep its keys; cut what is none of these."""

    def damage(file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return _cut(file)
        if file.suffix == ".yaml":
            return _rewrite(file, yaml.safe_dump(_changed(yaml.safe_load(text), change)))
        if file.suffix == ".jsonl":
            lines = [json.dumps(_changed(json.loads(line), change)) for line in text.splitlines()]
            return _rewrite(file, "\n".join(lines))
        return _rewrite(file, json.dumps(_changed(json.loads(text), change))) if file.suffix == ".json" else _cut(file)

    return damage


def _rewrite(file: Path, text: str) -> None:
    _remove(file)
    file.write_text(text, encoding="utf-8")


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _changed(inner, change) for key, inner in value.items()}
    return change(value)


DAMAGES: dict[str, Damage] = {
    "missing": _remove,
    "empty": _write(b""),
    "cut": _cut,
    "binary": _write(b"\xff\xfe\x00\x80" * 100),
    "zeros": _zeros,
    "null": _write(b"null"),
    "a list": _write(b"[1, 2]"),
    "an empty object": _write(b"{}"),
    "deep": _write(b"[" * 3000 + b"]" * 3000),
    "other types": _every_value(lambda value: [value]),
    "other words": _every_value(lambda value: "x" if not isinstance(value, str) else 3),
    "negative": _every_value(lambda value: -1),
    "huge": _every_value(lambda value: 10**30),
    "a folder": _as_folder,
    "a pipe": _as_pipe,
    "a loop": _as_loop,
}
