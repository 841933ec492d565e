"""Imports go one way: a module imports only from modules above it."""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# Each package and its members, top to bottom: a member imports only from members above it. The members of a package
# that is not listed may import each other, but not in a circle.
ORDER: dict[str, tuple[str, ...]] = {
    "lrpe": (
        *("moved", "errors", "autograd", "positions", "precision", "parallel", "schema"),
        *(
            "serialization",
            "atomic",
            "registry",
            "plugins",
            "native",
            "encodings",
            "theory",
            "angles",
            "weight_decay",
            "attention",
            "api",
            "models",
            "adapt",
            "lab",
        ),
        "__main__",
    ),
    "lrpe.encodings": (
        *("basis", "matrix_basis", "angles", "phase"),
        *("position_matrix", "unitary", "orthogonal", "permutation", "grid", "encoding", "stochastic", "absolute"),
        *("config", "family"),
    ),
    "lrpe.theory": (
        *("rank_growth", "linearizability", "probes", "laws", "token_rules", "cocycle", "definition", "canonical"),
        *("instances", "derive", "kernels", "matching"),
    ),
    "lrpe.attention": (
        *("inputs", "state", "tokens", "feature_map", "normalizer", "sums", "decay", "steps", "description", "engines"),
        *("convolution", "choices", "layer", "linear", "softmax_decay", "softmax", "functional"),
    ),
    "lrpe.attention.sums": ("problem", "chunks", "chunked", "causal", "bidirectional", "borders"),
    "lrpe.attention.engines": (
        "torch_engine",
        "library",
        "native_sum",
        "native_convolution",
        "native",
        "fla",
        "choice",
    ),
    "lrpe.models": (
        *("_needs", "schema", "layer_choices", "configuration", "architectures", "block", "cache"),
        *("inputs", "weights", "trunk"),
        *("language_models", "classification", "saved", "remote_code", "export"),
    ),
    "lrpe.adapt": ("_needs", "derived", "projections", "rotary", "attention", "saving", "replace", "export"),
    "lrpe.lab": (
        *("stamp", "aligned", "caches"),
        *("doctor", "data", "tasks", "training", "experiments", "benchmarks", "report", "cli"),
    ),
    "lrpe.lab.experiments": (
        *("paper", "methods", "experiment", "scale", "probe_columns", "columns"),
        *("tables", "planning", "build", "pool", "run", "baselines", "cost", "runs_on_disk"),
    ),
    "lrpe.lab.cli": (
        *("words", "table", "train", "runs", "models", "encodings", "data", "bench", "doctor", "parser"),
        "command_line",
    ),
    "lrpe.lab.benchmarks": (
        *("device", "timing", "process", "agreement", "memory", "lines", "turns", "limit", "peers", "measurement"),
        *("compare", "block", "sides", "stages", "step", "attention", "encoding", "decode"),
        *("several", "length_points", "length", "context", "loop", "train", "language", "__main__"),
    ),
    "lrpe.lab.report": (
        *(
            "picture",
            "page",
            "paired_test",
            "table",
            "page_table",
            "heat_map",
            "notes",
            "origins",
            "benchmark",
            "training",
            "results",
            "runs",
            "explorer",
        ),
    ),
    "lrpe.lab.report.explorer": ("dense", "page", "learned"),
    "lrpe.lab.doctor": ("requirements", "tiny_sums", "examination"),
    "lrpe.lab.data": (
        *("dataset", "jobs", "batches", "cache", "reading", "standard_library"),
        *("images", "text", "glue", "arena", "probes", "catalog"),
    ),
    "lrpe.lab.data.text": (*("sources", "tokenizer", "text_dataset", "masking", "hub", "corpora"),),
    "lrpe.lab.data.arena": (
        *("sequences", "listops_expressions", "listops", "text", "retrieval", "image"),
        *("pathfinder_generator", "pathfinder"),
    ),
    "lrpe.lab.data.probes": ("probe", "state", "position", "recall"),
    "lrpe.lab.data.glue": ("official", "stand_ins"),
    "lrpe.lab.data.images": ("augment", "class_folders", "cifar", "digits"),
    "lrpe.lab.tasks": (
        *("task", "language_modelling", "sentence_classification", "sequence_classification", "image_classification"),
        "token_prediction",
    ),
    "lrpe.lab.training": (
        *(
            "run_files",
            "processes",
            "settings",
            "steps",
            "parallel",
            "old_checkpoints",
        ),
        *("checkpoint", "record", "loop"),
    ),
}
CORE = (
    "moved",
    "errors",
    "positions",
    "precision",
    "autograd",
    "registry",
    "plugins",
    "parallel",
    "native",
    "encodings",
    "theory",
    "angles",
    "weight_decay",
    "attention",
    "api",
)
CORE_MAY_IMPORT = {*sys.stdlib_module_names, "torch", "lrpe"}

ROOT = Path(__file__).parents[1] / "lrpe"


def test_every_module_imports_only_from_modules_above_it():
    problems = find_problems(ROOT)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("errors.py", "from lrpe.positions import sequence", "lrpe.errors imports lrpe.positions, which is below it"),
        ("positions.py", "import lrpe.lab.cli.train", "lrpe.positions imports lrpe.lab.cli.train, which is below it"),
        ("models.py", "from .lab.cli import main", "lrpe.models imports lrpe.lab.cli, which is below it"),
        ("lab/data.py", "from .cli import main", "lrpe.lab.data imports lrpe.lab.cli, which is below it"),
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
            "lab/cli/train.py",
            "from lrpe import Encoding",
            "lrpe.lab.cli.train imports lrpe, the package it is in; import the module that has the name",
        ),
        (
            "encodings/__init__.py",
            "from lrpe.errors import LrpeError",
            "lrpe.encodings imports lrpe.errors; an __init__ re-exports from its own package only",
        ),
        ("__init__.py", "from lrpe.lab.cli import main", "lrpe imports lrpe.lab.cli, which is not in the core"),
        (
            "encodings/basis.py",
            "import numpy.linalg",
            "lrpe.encodings.basis imports numpy; the core needs the standard library and torch, nothing else",
        ),
        (
            "encodings/wavelet.py",
            "",
            "lrpe.encodings.wavelet has no place: add 'wavelet' to ORDER['lrpe.encodings'] in tests/test_imports.py, "
            "below everything that it imports",
        ),
        (
            "helpers.py",
            "",
            "lrpe.helpers has no place: add 'helpers' to ORDER['lrpe'] in tests/test_imports.py, "
            "below everything that it imports",
        ),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path, path, source, problem):
    root = make_tree(tmp_path, {path: source})
    assert find_problems(root) == [problem]


def test_a_circle_inside_a_package_without_an_order_is_found(tmp_path, monkeypatch):
    monkeypatch.delitem(ORDER, "lrpe.lab.data")
    root = make_tree(tmp_path, {"lab/data/a.py": "from lrpe.lab.data.b import x", "lab/data/b.py": "from .a import y"})
    (problem,) = find_problems(root)
    assert "import each other in a circle" in problem
    assert "lrpe.lab.data.a" in problem
    assert "lrpe.lab.data.b" in problem


def test_imports_along_the_order_are_accepted(tmp_path):
    sources = {
        "__init__.py": "from lrpe.encodings import Encoding\nfrom lrpe.errors import LrpeError",
        "positions.py": "import math\nimport torch.nn.functional as F\nfrom lrpe.errors import LrpeError",
        "encodings/__init__.py": "from .encoding import Encoding",
        "encodings/encoding.py": "from . import basis\nfrom ..errors import LrpeError",
        "lab/cli/__init__.py": "from lrpe.lab.cli.train import verify",
        "lab/cli/train.py": "import jsonargparse\nimport lrpe.errors\nfrom lrpe.encodings import Encoding",
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
    for package, member in steps(name):
        if package in ORDER and member not in ORDER[package]:
            return (
                f"{name} has no place: add {member!r} to ORDER[{package!r}] in tests/test_imports.py, "
                "below everything that it imports"
            )
    return None


def steps(name: str) -> list[tuple[str, str]]:
    """Each package on the way to a module, with its member on that way."""
    parts = name.split(".")
    return [(".".join(parts[:i]), parts[i]) for i in range(1, len(parts))]


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
    elif not place_problem(name) and not place_problem(target) and is_below(target, name):
        return f"{name} imports {target}, which is below it"
    return None


def is_inside(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def is_below(target: str, name: str) -> bool:
    """Whether the order of the first package in which the two part has the target after the name."""
    for (package, theirs), (_, ours) in zip(steps(target), steps(name), strict=False):
        if theirs != ours:
            order = ORDER.get(package, ())
            return theirs in order and order.index(theirs) > order.index(ours)
    return False


def circle_problems(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [f"These import each other in a circle: {' → '.join(error.args[1])}"]
    return []


def make_tree(folder: Path, sources: dict[str, str]) -> Path:
    """A small lrpe/ in folder: the given files among a few empty ones."""
    empty = ["__init__.py", "errors.py", "positions.py", "encodings/__init__.py", "encodings/basis.py"]
    empty += ["encodings/encoding.py", "lab/cli/__init__.py", "lab/cli/train.py"]
    for path, source in {**dict.fromkeys(empty, ""), **sources}.items():
        file = folder / "lrpe" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return folder / "lrpe"
