"""The text that every machine has: the sources of the running Python's standard library."""

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

_SPLITS = {"validation": (0,), "test": (1,)}  # of the twenty shares that files fall into; the rest is for training
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
    """Every module of the standard library in the order of its path, its tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if not set(path.relative_to(root).parts) & set(_LEFT_OUT))
    found = tuple(sorted(Module(path.relative_to(root).as_posix(), _read(path)) for path in files))
    require(len(found) > 100, f"The sources of the standard library are not in {str(root)!r}; got {len(found)} files.")
    return found


def _read(path: Path) -> str:
    """Its text; a byte that is no UTF-8 becomes a replacement character."""
    return path.read_bytes().decode("utf-8", errors="replace")


def fingerprint() -> str:
    """A hash of all paths and texts: it names the Python whose library this is."""
    found = sha256()
    for module in read_modules():
        found.update(module.path.encode() + b"\0" + module.text.encode() + b"\0")
    return found.hexdigest()


def cut_passages(module: Module, length: int) -> list[bytes]:
    """The file cut into passages of ``length`` bytes; a last one of less than half of that is left out."""
    content = module.text.encode()
    cut = [content[start : start + length] for start in range(0, len(content), length)]
    return [passage for passage in cut if 2 * len(passage) >= length]


_SHORTEST, _LONGEST = 5, 40  # words of a sentence
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PROSE = re.compile(r"[A-Z][\w ,;:'()\"-]+[.!?]")


class Docstring(NamedTuple):
    """What a function or a class says of itself: its name, and the sentences of its first paragraphs."""

    module: Module
    name: str
    sentences: tuple[str, ...]

    @property
    def split(self) -> str:
        return self.module.split


@cache
def read_docstrings() -> tuple[Docstring, ...]:
    """Every docstring of the standard library that has a sentence of prose, in the order of the modules."""
    return tuple(found for module in read_modules() for found in _read_docstrings(module))


def _read_docstrings(module: Module) -> Iterator[Docstring]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old sources
            tree = ast.parse(module.text)
    except (SyntaxError, ValueError):  # templates and samples of broken code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            sentences = tuple(_split_sentences(ast.get_docstring(node) or ""))
            if sentences:
                yield Docstring(module, node.name, sentences)


def _split_sentences(text: str) -> Iterator[str]:
    """Sentences of prose: words and common punctuation, of five to forty words."""
    for paragraph in text.split("\n\n"):
        for sentence in _SENTENCE.split(" ".join(paragraph.split())):
            if _PROSE.fullmatch(sentence) and _SHORTEST <= len(sentence.split()) <= _LONGEST:
                yield sentence
