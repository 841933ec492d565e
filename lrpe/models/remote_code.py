"""Copy our code into an exported model, as flat files that import only one another."""

import ast
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.encodings.config import ANGLES, BASES, MATRICES, OUTSIDE
from lrpe.encodings.family import BASELINES, FAMILY
from lrpe.encodings.registry import Registry
from lrpe.errors import LrpeError
from lrpe.models.configuration import LrpeConfig
from lrpe.models.trunk import LrpeModel

_IMPORT = re.compile(r"^(\s*)from (lrpe(?:\.\w+)+) import ", re.MULTILINE)


def add_code(folder: Path, kind: type, auto_classes: Iterable[str]) -> None:
    """Write our code as flat files beside the model, and name the module of each class in its configuration."""
    _flatten([kind.__module__, LrpeModel.__module__, LrpeConfig.__module__], folder)
    places = {"AutoConfig": LrpeConfig, "AutoModel": LrpeModel} | dict.fromkeys(auto_classes, kind)
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values |= {"auto_map": {name: f"{_flat_name(each.__module__)}.{each.__name__}" for name, each in places.items()}}
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _flatten(modules: Iterable[str], folder: Path) -> list[Path]:
    """Write these modules and all of lrpe that they import: lrpe.encodings.basis becomes lrpe_encodings_basis.py."""
    entries = list(modules)
    sources = closure(entries)
    written = []
    for module, source in sources.items():
        file = folder / f"{_flat_name(module)}.py"
        text = _IMPORT.sub(lambda found: f"{found[1]}from .{_flat_name(found[2])} import ", source)
        rest = _name_all(set(sources) - {module}) if module in entries else ""
        file.write_text(f"# {module} of lrpe {version('lrpe')}, MIT License.\n{text}{rest}", encoding="utf-8")
        written.append(file)
    return written


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


def plugins(config: LrpeConfig) -> list[str]:
    """Return names that lrpe itself did not register, such as "the basis 'wavelet' of my_package.bases"."""
    found = {
        f"the {kind} {name!r} of {register[name].__module__}"
        for kind, name, register in _list_choices(config)
        if register.is_foreign(name)
    }
    return sorted(found)


def _list_choices(config: LrpeConfig) -> Iterator[tuple[str, Any, Registry]]:
    """Yield (kind, name, registry) of everything that a configuration chooses by a registered name."""
    yield "feature map", config.feature_map, FEATURE_MAPS
    for layer in range(config.num_hidden_layers):
        choice, encoding = config.of_layer("encoding", layer), config.layer_encoding(layer)
        name = choice if isinstance(choice, str) else choice.get("name")
        yield from (("encoding", name, register) for register in (FAMILY, BASELINES))
        yield "basis", encoding.basis, BASES
        yield from (("position matrix", encoding.matrix, register) for register in (MATRICES, OUTSIDE))
        yield "kind of angles", encoding.angles, ANGLES
