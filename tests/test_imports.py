"""Imports go one way: a module imports only from modules above it."""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# Top to bottom. A layer is a module or a package of that name in lrpe/. A package with modules listed keeps to that
# order inside as well; in one with none listed the modules may import each other, but not in a circle.
LAYERS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "arguments": (),
    "positions": (),
    "stamp": (),
    "aligned": (),
    "whole": (),
    "names": (),
    "plain_yaml": (),
    "typed": (),
    "orphans": (),
    "options": (),
    "encodings": (
        "register",
        "precision",
        "differentiable",
        "adjoint",
        "gather",
        "basis",
        "householder",
        "matrix_basis",
        "scaling",
        "angles",
        "alignment",
        "position_matrix",
        "unitary",
        "orthogonal",
        "permutation",
        "grid",
        "encoding",
        "stochastic",
        "absolute",
        "config",
        "family",
        "growth",
        "linearizability",
        "laws",
        "probes",
        "measure",
        "definition",
        "canonical",
        "instances",
        "derive",
    ),
    "weight_decay": (),
    "attention": (),
    "api": (),
    "models": (),
    "replacement": (),
    "data": (),
    "tasks": (),
    "training": (),
    "experiments": (),
    "benchmarks": (),
    "report": (),
    "cli": (),
}
CORE = ("errors", "arguments", "positions", "encodings", "weight_decay", "attention", "api")
CORE_MAY_IMPORT = {*sys.stdlib_module_names, "torch", "lrpe"}

ROOT = Path(__file__).parents[1] / "lrpe"


def test_every_module_imports_only_from_modules_above_it():
    problems = find_problems(ROOT)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("errors.py", "from lrpe.positions import sequence", "lrpe.errors imports lrpe.positions, which is below it"),
        ("positions.py", "import lrpe.cli.verify", "lrpe.positions imports lrpe.cli.verify, which is below it"),
        ("positions.py", "from .cli import main", "lrpe.positions imports lrpe.cli, which is below it"),
        (
            "encodings/basis.py",
            "def f():\n    from .encoding import Encoding",
            "lrpe.encodings.basis imports lrpe.encodings.encoding, which is below it",
        ),
        (
            "encodings/basis.py",
            "from lrpe.encodings import encoding",
            "lrpe.encodings.basis imports lrpe.encodings.encoding, which is below it",
        ),
        (
            "encodings/encoding.py",
            "from lrpe.encodings import Householder",
            "lrpe.encodings.encoding imports lrpe.encodings, the package it is in; import the module that has the name",
        ),
        (
            "cli/verify.py",
            "from lrpe import Encoding",
            "lrpe.cli.verify imports lrpe, the package it is in; import the module that has the name",
        ),
        (
            "encodings/__init__.py",
            "from lrpe.errors import LrpeError",
            "lrpe.encodings imports lrpe.errors; an __init__ re-exports from its own package only",
        ),
        ("__init__.py", "from lrpe.cli import main", "lrpe imports lrpe.cli, which is not in the core"),
        (
            "encodings/basis.py",
            "import numpy.linalg",
            "lrpe.encodings.basis imports numpy; the core needs the standard library and torch, nothing else",
        ),
        (
            "encodings/wavelet.py",
            "",
            "lrpe.encodings.wavelet has no place: add 'wavelet' to LAYERS['encodings'] in tests/test_imports.py, "
            "below everything that it imports",
        ),
        (
            "helpers.py",
            "",
            "lrpe.helpers has no place: add 'helpers' to LAYERS in tests/test_imports.py, "
            "below everything that it imports",
        ),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path, path, source, problem):
    root = make_tree(tmp_path, {path: source})
    assert find_problems(root) == [problem]


def test_a_circle_inside_a_layer_is_found(tmp_path):
    root = make_tree(tmp_path, {"data/a.py": "from lrpe.data.b import x", "data/b.py": "from .a import y"})
    (problem,) = find_problems(root)
    assert "import each other in a circle" in problem
    assert "lrpe.data.a" in problem
    assert "lrpe.data.b" in problem


def test_imports_along_the_order_are_accepted(tmp_path):
    sources = {
        "__init__.py": "from lrpe.encodings import Encoding\nfrom lrpe.errors import LrpeError",
        "positions.py": "import math\nimport torch.nn.functional as F\nfrom lrpe.errors import LrpeError",
        "encodings/__init__.py": "from .encoding import Encoding",
        "encodings/encoding.py": "from . import basis\nfrom ..errors import LrpeError",
        "cli/__init__.py": "from lrpe.cli.verify import verify",
        "cli/verify.py": "import jsonargparse\nimport lrpe.errors\nfrom lrpe.encodings import Encoding",
    }
    assert find_problems(make_tree(tmp_path, sources)) == []


def find_problems(root: Path) -> list[str]:
    """Every import under root that goes against the order, as sentences."""
    modules = {name_of(path, root): path for path in sorted(root.rglob("*.py"))}
    imports = {name: set(imports_of(name, path, modules)) for name, path in modules.items()}
    misplaced = [complaint for name in modules if (complaint := place_problem(name))]
    wrong = [
        complaint
        for name, targets in imports.items()
        for target in sorted(targets)
        if (complaint := import_problem(name, target, is_package=modules[name].name == "__init__.py"))
    ]
    return misplaced + (wrong or circle_problems(imports))


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The full names of the modules that a file imports, wherever in the file the import stands."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            for alias in node.names:  # `from lrpe.encodings import basis` imports the module, not the package
                inner = f"{source}.{alias.name}"
                yield inner if inner in modules else source


def place_problem(name: str) -> str | None:
    _, layer, inner, *_ = [*name.split("."), "", ""]
    way_out = "in tests/test_imports.py, below everything that it imports"
    if layer and layer not in LAYERS:
        return f"{name} has no place: add {layer!r} to LAYERS {way_out}"
    if layer and inner and LAYERS[layer] and inner not in LAYERS[layer]:
        return f"{name} has no place: add {inner!r} to LAYERS[{layer!r}] {way_out}"
    return None


def import_problem(name: str, target: str, is_package: bool) -> str | None:
    layer, target_layer = ([*module.split("."), ""][1] for module in (name, target))
    if not is_inside(target, "lrpe"):
        top = target.split(".")[0]
        if (name == "lrpe" or layer in CORE) and top not in CORE_MAY_IMPORT:
            return f"{name} imports {top}; the core needs the standard library and torch, nothing else"
    elif is_package and name == "lrpe":
        if target_layer not in CORE:
            return f"{name} imports {target}, which is not in the core"
    elif is_package:
        if not is_inside(target, name) or target == name:
            return f"{name} imports {target}; an __init__ re-exports from its own package only"
    elif is_inside(name, target):
        return f"{name} imports {target}, the package it is in; import the module that has the name"
    elif not place_problem(name) and not place_problem(target) and rank(target) > rank(name):
        return f"{name} imports {target}, which is below it"
    return None


def is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def rank(name: str) -> tuple[int, int]:
    _, layer, inner, *_ = [*name.split("."), ""]
    order = LAYERS[layer]
    return list(LAYERS).index(layer), order.index(inner) if inner in order else 0


def circle_problems(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [f"These import each other in a circle: {' → '.join(error.args[1])}"]
    return []


def make_tree(folder: Path, sources: dict[str, str]) -> Path:
    """A small lrpe/ in folder: the given files among a few empty ones."""
    empty = ["__init__.py", "errors.py", "positions.py", "encodings/__init__.py", "encodings/basis.py"]
    empty += ["encodings/encoding.py", "cli/__init__.py", "cli/verify.py"]
    for path, source in {**dict.fromkeys(empty, ""), **sources}.items():
        file = folder / "lrpe" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return folder / "lrpe"
