"""docs/walk.md names the files that its three calls really pass."""

import re
import sys
from collections.abc import Callable
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import lrpe
from lrpe.lab.cli import main

PACKAGE = Path(lrpe.__file__).parent
BATCH, TOKEN, CELL = (PACKAGE.parent / "docs" / "walk.md").read_text(encoding="utf-8").split("\n## ")[1:]
SPECIFICATIONS = {"theory/definition.py", "attention/sums/problem.py"}  # named on the page, but no walk passes them


def trace(call: Callable[[], Any]) -> set[str]:
    """Return the files of lrpe in which a function runs during the call, except while modules are imported."""
    files: set[str] = set()

    def record(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename not in files and code.co_filename.startswith(str(PACKAGE)):
            is_function = code.co_flags & CO_NEWLOCALS and code.co_name != "<module>"
            if is_function and not is_importing(frame):
                files.add(code.co_filename)

    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
    paths = [Path(file).relative_to(PACKAGE) for file in files]
    return {path.as_posix() for path in paths if path.name != "__init__.py"}


def is_importing(frame: FrameType | None) -> bool:
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def check(section: str, passed: set[str]) -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", section)) - SPECIFICATIONS
    assert named == passed, f"missing: {sorted(passed - named)}; not passed: {sorted(named - passed)}"
    assert f"passes {len(passed)} files" in section


@pytest.mark.parametrize("section", [BATCH, TOKEN], ids=["batch", "token"])
def test_the_walk_of_a_batch_and_of_a_token_name_every_file(section):
    if lrpe.engines.status()["native"] != "ready":
        pytest.skip("the page follows the native engine, which is not built")
    setup, call = re.findall(r"^```python\n(.*?)^```", section, flags=re.S | re.M)
    names: dict[str, Any] = {}
    exec(setup, names)
    check(section, trace(lambda: exec(call, names)))


@pytest.mark.slow
def test_the_walk_of_a_cell_names_every_file(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))  # the walk prepares the data
    if lrpe.engines.status()["native"] != "ready":
        pytest.skip("the page follows the native engine, which is not built")
    (command,) = re.findall(r"^lrpe (.*)$", CELL, flags=re.M)
    check(CELL, trace(lambda: main(command.split())))
