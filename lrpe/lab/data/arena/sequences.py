"""Labelled sequences of ids below 256, concatenated in one array: a memory map on disk, or in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.cache import content_hash, prepare
from lrpe.lab.data.dataset import Draw, Sample
from lrpe.schema import Range

Row = tuple[int, tuple[bytes, ...]]  # a label, and one or two sequences of ids below 256
Size = Annotated[int, Range(1, 10**9)]  # samples in a split
_Same = TypeVar("_Same", bound="_Labelled")


@dataclass(frozen=True)
class _Labelled:
    """Concatenated sequences: number i is ``ids[edges[i] : edges[i + 1]]``."""

    ids: np.ndarray  # uint8
    edges: np.ndarray  # int64
    labels: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.labels)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle a memory map by its file name rather than its bytes."""
        named = {"ids": self.ids.filename} if isinstance(self.ids, np.memmap) else {}
        return self.__dict__ | named

    def __setstate__(self, state: dict[str, Any]) -> None:
        ids = state["ids"]
        self.__dict__.update(state | {"ids": ids if isinstance(ids, np.ndarray) else _map_ids(ids)})

    def sequence(self, i: int) -> np.ndarray:
        return self.ids[self.edges[i] : self.edges[i + 1]]

    def balance(self) -> list[int]:
        """Return the number of samples per label."""
        return np.bincount(self.labels).tolist()


class Sequences(_Labelled):
    """Samples {"ids", "label"}."""

    def sample(self, draw: Draw) -> Sample:
        return {"ids": self.sequence(draw.index), "label": int(self.labels[draw.index])}

    def part(self, start: int, stop: int) -> "Sequences":
        """Return samples start ... stop - 1."""
        return replace(self, edges=self.edges[start : stop + 1], labels=self.labels[start:stop])


class Pairs(_Labelled):
    """Samples {"ids", "pair_ids", "label"}: sequences 2i and 2i + 1 with label i."""

    def sample(self, draw: Draw) -> Sample:
        i = draw.index
        return {"ids": self.sequence(2 * i), "pair_ids": self.sequence(2 * i + 1), "label": int(self.labels[i])}


def store(
    kind: type[_Same], name: str, recipe: dict[str, Any], splits: Mapping[str, Callable[[], Iterable[Row]]]
) -> tuple[dict[str, _Same], str]:
    """Return splits that are written to the cache once and read from there as memory maps, and a hash of them all."""

    def build(folder: Path) -> None:
        for split, rows in splits.items():
            _write(folder / split, rows())

    folder = prepare(name, recipe, build)
    return {split: _read(kind, folder / split) for split in splits}, content_hash(folder)


def hold(kind: type[_Same], rows: Iterable[Row]) -> _Same:
    """Return a split held in memory."""
    kept = list(rows)
    sequences = [sequence for _, texts in kept for sequence in texts]
    ids = np.frombuffer(b"".join(sequences), dtype=np.uint8)
    return kind(ids, _edges_of(map(len, sequences)), np.array([label for label, _ in kept], dtype=np.int64))


def _write(folder: Path, rows: Iterable[Row]) -> None:
    folder.mkdir()
    lengths, labels = [], []
    with (folder / "ids.bin").open("wb") as stream:
        for label, sequences in rows:
            labels.append(label)
            for sequence in sequences:
                lengths.append(stream.write(sequence))
    np.save(folder / "edges.npy", _edges_of(lengths))
    np.save(folder / "labels.npy", np.array(labels, dtype=np.int64))


def _read(kind: type[_Same], folder: Path) -> _Same:
    edges, labels = np.load(folder / "edges.npy"), np.load(folder / "labels.npy")
    ids = _map_ids(folder / "ids.bin") if edges[-1] else np.zeros(0, dtype=np.uint8)  # an empty file cannot be mapped
    return kind(ids, edges, labels)


def _map_ids(file: Path) -> np.ndarray:
    return np.memmap(file, dtype=np.uint8, mode="r")


def _edges_of(lengths: Iterable[int]) -> np.ndarray:
    return np.cumsum([0, *lengths], dtype=np.int64)


def sequence_facts(
    splits: Mapping[str, _Labelled], vocabulary: int, labels: int, padding: int | None, **more: Any
) -> dict:
    """Return a dataset's facts: the vocabulary, the labels and their balance, the longest sequence, and ``more``."""
    longest = max(int(np.diff(split.edges).max(initial=0)) for split in splits.values())
    return {
        "vocab_size": vocabulary,
        "num_labels": labels,
        "pad_token_id": padding,
        "longest": longest,
        "balance": {name: split.balance() for name, split in splits.items()},
    } | more


_PADDING = 256


def byte_facts(splits: Mapping[str, _Labelled], labels: Sequence[str], **more: object) -> dict:
    """Return the facts of a dataset of labelled bytes."""
    return sequence_facts(splits, vocabulary=257, labels=len(labels), padding=_PADDING, names=list(labels), **more)


def _decode(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def show_text(labels: Sequence[str], sample: Sample) -> str:
    """Format a sample of one or two texts as one line."""
    texts = [_decode(sample[name]) for name in ("ids", "pair_ids") if name in sample]
    width = 240 // len(texts)
    return f"{labels[sample['label']]}: " + " ⟷ ".join(" ".join(text[:width].split()) for text in texts)


def require_length(length: int) -> None:
    require(length >= 1, f"length must be at least 1; got length={length}.")
