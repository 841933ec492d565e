"""The Text task of Long-Range Arena, as bytes: sentiment of IMDB reviews (Maas et al., 2011), or library passages."""

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.sequences import Row, Sequences, byte_facts, hold, require_length, show_text
from lrpe.lab.data.dataset import Dataset, Entry
from lrpe.lab.data.jobs import progress
from lrpe.lab.data.reading import find_file, number_lines
from lrpe.lab.data.standard_library import Module, cut_passages, fingerprint, read_modules
from lrpe.schema import Count

_LABELS = ("neg", "pos")
_VALIDATION_SHARE = 10  # one training review in ten is held out

_Review = tuple[int, bytes]


def load_reviews(path: Path, length: Count = 4096) -> Dataset:
    """Load the first ``length`` bytes of each review.

    A tenth of the training reviews is held out for validation by a hash of the text, so that duplicates stay together.
    """
    require_length(length)
    root = path / "aclImdb" if (path / "aclImdb").is_dir() else path
    read = _read_folders if (root / "train").is_dir() else _read_jsonl
    train = list(read(root, "train"))
    parts = {
        "train": [review for review in train if not _is_for_validation(review)],
        "validation": [review for review in train if _is_for_validation(review)],
        "test": list(read(root, "test")),
    }
    splits = {name: hold(Sequences, _cut(reviews, length)) for name, reviews in parts.items()}
    digest = sha256(b"".join(sha256(text).digest() for part in parts.values() for _, text in part)).hexdigest()
    return Dataset("lra-text", {**splits}, byte_facts(splits, _LABELS, content=digest), partial(show_text, _LABELS))


def _is_for_validation(review: _Review) -> bool:
    return int.from_bytes(sha256(review[1]).digest()[:8]) % _VALIDATION_SHARE == 0


def _cut(reviews: list[_Review], length: int) -> Iterator[Row]:
    return ((label, (text[:length],)) for label, text in reviews)


def _read_folders(root: Path, split: str) -> Iterator[_Review]:
    """Read {split}/{pos,neg}/*.txt, one review per file."""
    for label, name in enumerate(_LABELS):
        folder = root / split / name
        files = sorted(folder.glob("*.txt"))
        require(len(files) > 0, f"{str(folder)!r} must contain the {name} reviews as *.txt; it has none.")
        for file in progress(files, f"{split}/{name}", unit="files"):
            yield label, _read_file(file)


def _read_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise LrpeError(f"{str(file)!r} cannot be read: {error}.") from error


def _read_jsonl(root: Path, split: str) -> Iterator[_Review]:
    """Read {split}.jsonl or {split}.jsonl.gz, objects with text and label."""
    file = find_file(root, f"{split}.jsonl")
    for number, line in number_lines(file):
        if line.strip():
            yield parse_review(line, f"{str(file)!r}, line {number}")


def parse_review(line: bytes, source: str) -> _Review:
    try:
        review = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LrpeError(f"{source}: a line must be one JSON object; got {line[:60]!r} ({error}).") from None
    holds = isinstance(review, dict) and isinstance(review.get("text"), str) and review.get("label") in (0, 1)
    require(holds, f"{source}: a review must have a text and a label of 0 or 1; got {line[:60]!r}.")
    return int(review["label"]), review["text"].encode("utf-8", errors="replace")


_PACKAGES, _FILES = 10, 12  # the most packages, and the fewest files per package
_SHARES = {"validation": 0, "test": 1}  # of five shares of a package's files; the rest are for training


def load_passages(length: Count = 1024) -> Dataset:
    """Load passages of ``length`` bytes, equally many per package; no file is in two splits."""
    require_length(length)
    packages = large_packages()
    splits = {
        name: hold(Sequences, _balance_passages(packages, name, length)) for name in ("train", "validation", "test")
    }
    known = byte_facts(splits, list(packages), content=fingerprint())
    return Dataset("stdlib-packages", {**splits}, known, partial(show_text, list(packages)))


def large_packages() -> dict[str, list[Module]]:
    """Return the packages with the most text, sorted by name, with their files sorted by a hash of the path."""
    packages: dict[str, list[Module]] = {}
    for module in sorted(read_modules(), key=lambda module: sha256(module.path.encode()).digest()):
        packages.setdefault(module.package, []).append(module)
    large = {name: modules for name, modules in packages.items() if len(modules) >= _FILES}
    require(
        len(large) >= 2, f"Two packages must have at least {_FILES} files; got {sorted(large)}. Install all of Python."
    )
    size = {name: sum(len(module.text) for module in modules) for name, modules in large.items()}
    return {name: large[name] for name in sorted(sorted(large, key=lambda name: -size[name])[:_PACKAGES])}


def _balance_passages(packages: dict[str, list[Module]], split: str, length: int) -> Iterator[Row]:
    """Yield equally many passages per package, spread evenly over those available."""
    passages = [
        [text for module in select_split(modules, split) for text in cut_passages(module, length)]
        for modules in packages.values()
    ]
    count = min(map(len, passages))
    require(count >= 1, f"Every package needs a passage in split {split}; length={length} is too long. Reduce it.")
    for label, texts in enumerate(passages):
        yield from ((label, (texts[i * len(texts) // count],)) for i in range(count))


def select_split(modules: list[Module], split: str) -> list[Module]:
    shares = (_SHARES[split],) if split in _SHARES else (2, 3, 4)
    return [module for rank, module in enumerate(modules) if rank % 5 in shares]


ENTRIES = (
    Entry(
        "lra-text",
        "sequence",
        "is an IMDB film review good or bad? up to 4,096 bytes",
        "free for research (Maas et al., 2011)",
        "https://ai.stanford.edu/~amaas/data/sentiment/ (aclImdb_v1.tar.gz)",
        "aclImdb/{train,test}/{pos,neg}/*.txt, or train.jsonl and test.jsonl (or .gz) with text and label",
        load_reviews,
    ),
    Entry(
        "stdlib-packages",
        "sequence",
        "which package of Python's standard library is a passage from? as bytes",
        "PSF",
        "included in the running Python",
        None,
        load_passages,
    ),
)
