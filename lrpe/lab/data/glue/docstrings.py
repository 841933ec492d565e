"""Sentences that every machine has: the docstrings of the standard library."""

import ast
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from lrpe.lab.data.embedded import Module, standard_library

SHORTEST, LONGEST = 5, 40  # words of a sentence
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
PROSE = re.compile(r"[A-Z][\w ,;:'()\"-]+[.!?]")


class Docstring(NamedTuple):
    """What a function or a class says of itself: its name, and the sentences of its first paragraphs."""

    module: Module
    name: str
    sentences: tuple[str, ...]

    @property
    def split(self) -> str:
        return self.module.split


@cache
def docstrings() -> tuple[Docstring, ...]:
    """Every docstring of the standard library that has a sentence of prose, in the order of the modules."""
    return tuple(found for module in standard_library() for found in of_module(module))


def of_module(module: Module) -> Iterator[Docstring]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in old sources
            tree = ast.parse(module.text)
    except (SyntaxError, ValueError):  # templates and samples of broken code
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            sentences = tuple(sentences_of(ast.get_docstring(node) or ""))
            if sentences:
                yield Docstring(module, node.name, sentences)


def sentences_of(text: str) -> Iterator[str]:
    """Sentences of prose: words and common punctuation, of five to forty words."""
    for paragraph in text.split("\n\n"):
        for sentence in SENTENCE.split(" ".join(paragraph.split())):
            if PROSE.fullmatch(sentence) and SHORTEST <= len(sentence.split()) <= LONGEST:
                yield sentence
