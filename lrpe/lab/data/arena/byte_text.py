"""Text as bytes: the ids 0-255, and 256 for padding."""

from collections.abc import Mapping, Sequence

from lrpe.errors import require
from lrpe.lab.data.arena.sequences import Labelled, facts
from lrpe.lab.data.dataset import Sample

PADDING = 256


def byte_facts(splits: Mapping[str, Labelled], labels: Sequence[str], **more: object) -> dict:
    """What is to be known of labelled bytes."""
    return facts(splits, vocabulary=257, labels=len(labels), padding=PADDING, names=list(labels), **more)


def decoded(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def show_with(labels: Sequence[str], sample: Sample) -> str:
    """A sample of one text or two as a line."""
    texts = [decoded(sample[name]) for name in ("ids", "pair_ids") if name in sample]
    width = 240 // len(texts)
    return f"{labels[sample['label']]}: " + " ⟷ ".join(" ".join(text[:width].split()) for text in texts)


def require_length(length: int) -> None:
    require(length >= 1, f"A text is cut to one byte or more; got length={length}.")
