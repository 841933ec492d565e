"""Our modules as flat files that import one another alone: the code that a model can carry with it."""

import ast
import importlib.util
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from lrpe.errors import LrpeError

IMPORT = re.compile(r"^(\s*)from (lrpe(?:\.\w+)+) import ", re.MULTILINE)


def flatten(modules: Iterable[str], folder: Path) -> list[Path]:
    """Write these modules of ours and all that they import: lrpe.encodings.basis becomes lrpe_encodings_basis.py."""
    entries = list(modules)
    sources = closure(entries)
    written = []
    for module, source in sources.items():
        file = folder / f"{flat_name(module)}.py"
        text = IMPORT.sub(lambda found: f"{found[1]}from .{flat_name(found[2])} import ", source)
        rest = name_all(set(sources) - {module}) if module in entries else ""
        file.write_text(f"# {module} of lrpe {version('lrpe')}, MIT License.\n{text}{rest}", encoding="utf-8")
        written.append(file)
    return written


def name_all(modules: Iterable[str]) -> str:
    """Imports that never run. Older transformers copy only those files that the first one names."""
    lines = [f"    from .{flat_name(module)} import *\n" for module in sorted(modules)]
    return "".join(["\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n", *lines])


def closure(modules: Iterable[str]) -> dict[str, str]:
    """{module: source} of these and of every module of ours that they import."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = source_of(module)
            waiting += imported(module, found[module])
    return found


def imported(module: str, source: str) -> list[str]:
    """The modules of ours that a source imports from, all by ``from lrpe.place import name``."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "lrpe" for alias in node.names):
            raise LrpeError(f"{module} imports a package of ours whole, which a flat file cannot.")
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lrpe":
            names.append(node.module or "")
    return names


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        raise LrpeError(f"{module} is a package: import from the module that defines the name.")
    return Path(spec.origin).read_text(encoding="utf-8")


def flat_name(module: str) -> str:
    return module.replace(".", "_")
