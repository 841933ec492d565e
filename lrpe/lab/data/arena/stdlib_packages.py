"""Byte-text classification that every machine has: from which package of the standard library does a passage come?"""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256

from lrpe.errors import require
from lrpe.lab.data.arena.byte_text import byte_facts, require_length, show_with
from lrpe.lab.data.arena.passages import passages
from lrpe.lab.data.arena.sequences import Row, Sequences, held
from lrpe.lab.data.dataset import Dataset
from lrpe.lab.data.embedded import Module, fingerprint, standard_library
from lrpe.lab.data.entry import Entry
from lrpe.typed import Count

PACKAGES, FILES = 10, 12  # so many packages at most, each with so many files or more
SHARES = {"validation": 0, "test": 1}  # of the five that the files of a package fall into; the rest is for training


def load(length: Count = 1024) -> Dataset:
    """Passages of ``length`` bytes, as many of one package as of another; no file is in two splits."""
    require_length(length)
    packages = large_packages()
    splits = {name: held(Sequences, balanced(packages, name, length)) for name in ("train", "validation", "test")}
    known = byte_facts(splits, list(packages), content=fingerprint())
    return Dataset("stdlib-packages", {**splits}, known, partial(show_with, list(packages)))


def large_packages() -> dict[str, list[Module]]:
    """The packages with the most text, in the order of their names; files in the order of a hash of their path."""
    packages: dict[str, list[Module]] = {}
    for module in sorted(standard_library(), key=lambda module: sha256(module.path.encode()).digest()):
        packages.setdefault(module.package, []).append(module)
    large = {name: modules for name, modules in packages.items() if len(modules) >= FILES}
    require(len(large) >= 2, f"Two packages have {FILES} files or more; got {sorted(large)}: install all of Python.")
    size = {name: sum(len(module.text) for module in modules) for name, modules in large.items()}
    return {name: large[name] for name in sorted(sorted(large, key=lambda name: -size[name])[:PACKAGES])}


def balanced(packages: dict[str, list[Module]], split: str, length: int) -> Iterator[Row]:
    """As many passages of each package as the smallest has, spread over all that there are."""
    found = [
        [text for module in of_split(modules, split) for text in passages(module, length)]
        for modules in packages.values()
    ]
    count = min(map(len, found))
    require(count >= 1, f"Every package has a passage for {split}; none has {length} bytes: take shorter ones.")
    for label, texts in enumerate(found):
        yield from ((label, (texts[i * len(texts) // count],)) for i in range(count))


def of_split(modules: list[Module], split: str) -> list[Module]:
    shares = (SHARES[split],) if split in SHARES else (2, 3, 4)
    return [module for rank, module in enumerate(modules) if rank % 5 in shares]


ENTRIES = (
    Entry(
        "stdlib-packages",
        "sequence",
        "from which package of Python's standard library is a passage? byte by byte",
        "PSF",
        "the running Python, which brings it",
        None,
        load,
    ),
)
