"""Text available everywhere: the sources of the running Python's standard library, their passages and docstrings."""

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lrpe.errors import require

_SPLITS = {"validation": (0,), "test": (1,)}  # which of twenty shares; the rest is for training
_LEFT_OUT = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3")


class Module(NamedTuple):
    """A source file of the standard library."""

    path: str  # relative to the library, with slashes: "email/parser.py"
    text: str

    @property
    def package(self) -> str:
        """The top-level package or module: "email"."""
        return self.path.partition("/")[0].removesuffix(".py")

    @property
    def split(self) -> str:
        """train, validation or test, by a hash of the path: the same on every machine."""
        share = int(sha256(self.path.encode()).hexdigest(), 16) % 20
        return next((name for name, shares in _SPLITS.items() if share in shares), "train")


@cache
def read_modules() -> tuple[Module, ...]:
    """Return every module of the standard library, ordered by path, without its tests."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not set(path.relative_to(root).parts) & set(_LEFT_OUT))
    modules = tuple(sorted(Module(path.relative_to(root).as_posix(), _read(path)) for path in files))
    require(
        len(modules) > 100, f"The sources of the standard library are not in {str(root)!r}; got {len(modules)} files."
    )
    return modules


def _read(path: Path) -> str:
    """Return the text of a file; bytes that are not UTF-8 become replacement characters."""
    return path.read_bytes().decode("utf-8", errors="replace")


def fingerprint() -> str:
    """Return a hash of all paths and texts, which identifies this Python's library."""
    hasher = sha256()
    for module in read_modules():
        hasher.update(module.path.encode() + b"\0" + module.text.encode() + b"\0")
    return hasher.hexdigest()


def cut_passages(module: Module, length: int) -> list[bytes]:
    """Cut a module into passages of ``length`` bytes; a last one shorter than half of that is dropped."""
    content = module.text.encode()
    cut = [content[start : start + length] for start in range(0, len(content), length)]
    return [passage for passage in cut if 2 * len(passage) >= length]


_SHORTEST, _LONGEST = 5, 40  # words of a sentence
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PROSE = re.compile(r"[A-Z][\w ,;:'()\"-]+[.!?]")


class Docstring(NamedTuple):
    """The docstring of a function or class: its name, and the sentences of its prose."""

    module: Module
    name: str
    sentences: tuple[str, ...]

    @property
    def split(self) -> str:
        return self.module.split


@cache
def read_docstrings() -> tuple[Docstring, ...]:
    """Return every docstring of the standard library with a sentence of prose, in the order of the modules."""
    return tuple(docstring for module in read_modules() for docstring in _read_docstrings(module))


def _read_docstrings(module: Module) -> Iterator[Docstring]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in old sources
            tree = ast.parse(module.text)
    except (SyntaxError, ValueError):  # templates and deliberately broken samples
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            sentences = tuple(_split_sentences(ast.get_docstring(node) or ""))
            if sentences:
                yield Docstring(module, node.name, sentences)


def _split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of prose: words and common punctuation, five to forty words."""
    for paragraph in text.split("\n\n"):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if _PROSE.fullmatch(sentence) and _SHORTEST <= len(sentence.split()) <= _LONGEST:
                yield sentence
