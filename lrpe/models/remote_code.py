"""Copy our code into an exported model, as flat files that import only one another."""

import ast
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.encodings.config import ANGLES, BASES, MATRICES, OUTSIDE
from lrpe.encodings.encoding import STEP_RULES
from lrpe.encodings.family import BASELINES, FAMILY, GRIDS
from lrpe.errors import LrpeError, require
from lrpe.models.configuration import LrpeConfig
from lrpe.models.trunk import LrpeModel
from lrpe.plugins import Plugin, find_plugins
from lrpe.registry import Registry

_IMPORT = re.compile(r"^(\s*)from (lrpe(?:\.\w+)+) import ", re.MULTILINE)


def add_code(folder: Path, kind: type, auto_classes: Iterable[str], plugins: Sequence[Plugin] = ()) -> None:
    """Write our code and that of plug-ins as flat files beside the model, and name the modules of its classes.

    Raises:
        LrpeError: a plug-in imports what cannot be written as a flat file.
    """
    sources = {plugin.module: _read_plugin(plugin) for plugin in plugins}
    _flatten([kind.__module__, LrpeModel.__module__, LrpeConfig.__module__], folder, sources)
    places = {"AutoConfig": LrpeConfig, "AutoModel": LrpeModel} | dict.fromkeys(auto_classes, kind)
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values |= {"auto_map": {name: f"{_flat_name(each.__module__)}.{each.__name__}" for name, each in places.items()}}
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _flatten(modules: Iterable[str], folder: Path, plugins: Mapping[str, str]) -> list[Path]:
    """Write these modules and all of lrpe that they import: lrpe.encodings.basis becomes lrpe_encodings_basis.py.

    The module of LrpeConfig runs the plug-ins, because the names in a configuration are checked when it is read.
    """
    entries = list(modules)
    needed = [name for module, source in plugins.items() for name in imported(module, source)]
    sources = closure([*entries, *needed])
    written = []
    for module, source in plugins.items():
        written.append(folder / f"{module}.py")
        written[-1].write_text(_make_flat(source), encoding="utf-8")
    for module, source in sources.items():
        file = folder / f"{_flat_name(module)}.py"
        text = _make_flat(source)
        if module == LrpeConfig.__module__:
            text += "".join(f"\nfrom .{plugin} import *  # registers names\n" for plugin in plugins)
        rest = _name_all({*sources, *plugins} - {module}) if module in entries else ""
        file.write_text(f"# {module} of lrpe {version('lrpe')}, MIT License.\n{text}{rest}", encoding="utf-8")
        written.append(file)
    return written


def _make_flat(source: str) -> str:
    return _IMPORT.sub(lambda found: f"{found[1]}from .{_flat_name(found[2])} import ", source)


def _name_all(modules: Iterable[str]) -> str:
    """Return imports that never run: older transformers copy only the files that the first one names."""
    lines = [f"    from .{_flat_name(module)} import *\n" for module in sorted(modules)]
    return "".join(["\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n", *lines])


def closure(modules: Iterable[str]) -> dict[str, str]:
    """Return {module: source} of these modules and of every module of lrpe that they import."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = _read_source(module)
            waiting += imported(module, found[module])
    return found


def imported(module: str, source: str) -> list[str]:
    """Return the modules of lrpe that a source imports by ``from lrpe.module import name``."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "lrpe" for alias in node.names):
            raise LrpeError(
                f"{module} must import names, as in `from lrpe.module import name`, to be written as a flat file."
            )
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lrpe":
            names.append(node.module or "")
    return names


def _read_source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        raise LrpeError(f"{module} is a package: import from the module that defines the name.")
    return Path(spec.origin).read_text(encoding="utf-8")


def _flat_name(module: str) -> str:
    return module.replace(".", "_")


def _read_plugin(plugin: Plugin) -> str:
    """Return the source of a plug-in without what it does as a script; refuse imports that a flat file cannot have."""
    source = _without_script(plugin.source)
    try:
        names = imported(f"The plug-in {plugin.file!r}", source)
        for name in names:
            require(
                not f"{name}.".startswith("lrpe.lab."),
                f"The plug-in {plugin.file!r} must not import {name}, which is no part of a model, to be exported with "
                "its code.",
            )
            _read_source(name)
    except LrpeError as error:
        raise LrpeError(f"{error} Change the plug-in's import, or export without remote_code.") from None
    return source


def _without_script(source: str) -> str:
    """Return a source without its ``if __name__ == "__main__":`` block."""
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            del lines[node.lineno - 1 : node.end_lineno]
    return "".join(lines)


def find_foreign(config: LrpeConfig) -> tuple[list[str], list[Plugin]]:
    """Return names that neither lrpe nor a plug-in registered, and the plug-ins that registered others.

    A name is described as in "the basis 'wavelet' of my_package.bases".
    """
    choices = [choice for choice in _list_choices(config) if choice[2].is_foreign(choice[1])]
    used = find_plugins([name for _, name, _ in choices])
    theirs = {name for plugin in used for name in plugin.names}
    others = {
        f"the {kind} {name!r} of {_module_of(known[name])}" for kind, name, known in choices if name not in theirs
    }
    return sorted(others), used


def _module_of(maker: Any) -> str:
    return getattr(maker, "__module__", None) or type(maker).__module__


def _list_choices(config: LrpeConfig) -> Iterator[tuple[str, Any, Registry]]:
    """Yield (kind, name, registry) of everything that a configuration chooses by a registered name."""
    yield "feature map", config.feature_map, FEATURE_MAPS
    for layer in range(config.num_hidden_layers):
        choice, encoding = config.of_layer("encoding", layer), config.layer_encoding(layer)
        name = choice if isinstance(choice, str) else choice.get("name")
        yield from (("encoding", name, register) for register in (FAMILY, GRIDS, BASELINES))
        yield "basis", encoding.basis, BASES
        yield from (("position matrix", encoding.matrix, register) for register in (MATRICES, OUTSIDE))
        yield "kind of angles", encoding.angles, ANGLES
        yield "rule of steps", encoding.steps, STEP_RULES
