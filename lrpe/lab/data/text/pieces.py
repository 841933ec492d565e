"""Long documents in pieces that are encoded each by itself, so that a text of any size fits into memory."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lrpe.lab.data.text.source import Document

SIZE = 1 << 20  # characters
LINE = re.compile(r"\n(?=\S)")


class Piece(NamedTuple):
    """A part of a document that is encoded by itself."""

    split: str
    text: str
    last: bool


def cut_documents(documents: Iterable[Document]) -> Iterator[Piece]:
    for split, text in documents:
        parts = list(cut(text))
        yield from (Piece(split, part, last=number == len(parts)) for number, part in enumerate(parts, 1))


def cut(text: str, size: int = SIZE) -> Iterator[str]:
    """Parts of about ``size`` characters, cut before the last of the newlines between two lines.

    There GPT-2's pattern cuts too, so that the parts have the tokens of the whole.

    >>> list(cut("one\\n\\ntwo\\nthree", size=3))
    ['one\\n', '\\ntwo', '\\nthree']
    """
    begin = 0
    while len(text) - begin > size and (found := LINE.search(text, begin + size)):
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]


def group(pieces: Iterable[Piece], size: int = 4 * SIZE) -> Iterator[list[Piece]]:
    """Lists of about ``size`` characters together."""
    held, characters = [], 0
    for piece in pieces:
        held.append(piece)
        characters += len(piece.text)
        if characters >= size:
            yield held
            held, characters = [], 0
    if held:
        yield held
