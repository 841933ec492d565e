"""Retrieval of Long-Range Arena: published pairs of papers, any citation graph, or pairs of library passages.

In a citation graph a hash of a paper's id decides its split; a pair across two splits is left out. Each citing pair
comes with an unrelated one: the same first paper with another paper of its split that it does not cite.
"""

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.sequences import Pairs, Row, Size, byte_facts, hold, require_length, show_text, store
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset, Entry
from lrpe.lab.data.jobs import progress
from lrpe.lab.data.reading import find_file, number_lines
from lrpe.lab.data.standard_library import cut_passages, fingerprint, read_modules
from lrpe.schema import Count, Seed

_VERSION = 1  # of the cached format
_CITING = ("unrelated", "cites")
_FILES = {"train": "train.tsv", "validation": "eval.tsv", "test": "test.tsv"}
_NUMBERS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}


def load_official(path: Path, length: Count = 4000) -> Dataset:
    """Load the published pairs, with the first ``length`` bytes of each paper."""
    require_length(length)
    files = {split: find_file(path, f"new_aan_pairs.{name}", name) for split, name in _FILES.items()}
    recipe = {"version": _VERSION, "length": length, "sources": hash_files(*files.values())}
    rows = {split: partial(read_tsv, file, length) for split, file in files.items()}
    splits, content = store(Pairs, "lra-retrieval", recipe, rows)
    known = byte_facts(splits, _CITING, content=content)
    return Dataset("lra-retrieval", {**splits}, known, partial(show_text, _CITING))


def read_tsv(file: Path, length: int) -> Iterator[Row]:
    for number, line in progress(number_lines(file), file.name, unit="lines"):
        fields = line.split(b"\t")
        source = f"{str(file)!r}, line {number}"
        require(len(fields) == 5, f"{source}: a row must be label, id1, id2, text1, text2; got {len(fields)} columns.")
        label = _NUMBERS.get(fields[0].strip(b'"'))
        require(label is not None, f"{source}: the label must be 0, 1, 0.0 or 1.0; got {fields[0][:20]!r}.")
        yield label, (fields[3][:length], fields[4][:length])  # type: ignore[misc]


_SHARES = {"validation": (0, 1, 2), "test": (3, 4, 5)}  # of twenty shares; the rest are for training


def load_citations(path: Path, length: Count = 4000, seed: Seed = 0) -> Dataset:
    """Load a citation graph, with the first ``length`` bytes of each paper; count papers without text and skip them."""
    require_length(length)
    papers_file, pairs_file = find_file(path, "docs.jsonl"), find_file(path, "citations.tsv")
    papers, empty = _read_papers(papers_file)
    citing = _read_pairs(pairs_file)
    splits = {
        name: hold(Pairs, _pair_papers(papers, citing, name, length, seed)) for name in ("train", "validation", "test")
    }
    known = byte_facts(splits, _CITING, papers=len(papers), empty=empty, citations=len(citing))
    known["content"] = hash_files(papers_file, pairs_file)
    return Dataset("citations", {**splits}, known, partial(show_text, _CITING))


def _read_papers(file: Path) -> tuple[dict[str, bytes], int]:
    """Return texts by id, and the number of papers without text."""
    papers = [
        _parse_paper(line, f"{str(file)!r}, line {number}") for number, line in number_lines(file) if line.strip()
    ]
    texts = {name: text for name, text in papers if text.strip()}
    return texts, len(papers) - len(texts)


def _parse_paper(line: bytes, source: str) -> tuple[str, bytes]:
    try:
        paper = json.loads(line)
        return str(paper["id"]), paper["text"].encode("utf-8", errors="replace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LrpeError(f"{source}: a paper must be a JSON object with id and text; got {line[:60]!r}.") from None


def _read_pairs(file: Path) -> list[tuple[str, str]]:
    pairs = []
    for number, line in number_lines(file):
        ids = line.decode("utf-8", errors="replace").split("\t")
        require(len(ids) == 2, f"{str(file)!r}, line {number}: a row must be two ids; got {len(ids)} columns.")
        pairs.append((ids[0], ids[1]))
    return pairs


def _choose_split(paper: str) -> str:
    share = int(sha256(paper.encode()).hexdigest(), 16) % 20
    return next((name for name, shares in _SHARES.items() if share in shares), "train")


def _pair_papers(
    papers: dict[str, bytes], citing: list[tuple[str, str]], split: str, length: int, seed: int
) -> Iterator[Row]:
    here = sorted(paper for paper in papers if _choose_split(paper) == split)
    known = set(here)
    inside = sorted({(one, other) for one, other in citing if one != other and one in known and other in known})
    related = {*inside, *((other, one) for one, other in inside), *((paper, paper) for paper in here)}
    rng = np.random.default_rng(seed)
    require(
        len(inside) > 0,
        f"Some papers of split {split} must cite each other; none of {len(here)} does. Use a larger graph.",
    )
    for one, other in inside:
        strangers = [paper for paper in here if (one, paper) not in related]
        if strangers:
            stranger = strangers[rng.integers(len(strangers))]
            yield 1, (papers[one][:length], papers[other][:length])
            yield 0, (papers[one][:length], papers[stranger][:length])


_MODULES = ("two modules", "one module")


def load_stdlib_pairs(
    length: Count = 1024, train: Size = 16_000, validation: Size = 1_000, test: Size = 1_000, seed: Seed = 0
) -> Dataset:
    """Draw pairs of passages of ``length`` bytes, every second from one module. No module is in two splits."""
    require_length(length)
    sizes = {"train": train, "validation": validation, "test": test}
    require(min(sizes.values()) >= 1, f"train, validation and test must each be at least 1; got {sizes}.")
    splits = {
        name: hold(Pairs, _pair_passages(_list_modules(name, length), size, np.random.default_rng((seed, number))))
        for number, (name, size) in enumerate(sizes.items())
    }
    known = byte_facts(splits, _MODULES, content=fingerprint(), seed=seed)
    return Dataset("stdlib-pairs", {**splits}, known, partial(show_text, _MODULES))


def _list_modules(split: str, length: int) -> list[list[bytes]]:
    """Return the passages of each module of the split that has at least two."""
    passages = [cut_passages(module, length) for module in read_modules() if module.split == split]
    long = [texts for texts in passages if len(texts) >= 2]
    require(
        len(long) >= 2, f"Two modules of split {split} must have two passages; length={length} is too long. Reduce it."
    )
    return long


def _pair_passages(modules: list[list[bytes]], count: int, rng: np.random.Generator) -> Iterator[Row]:
    for number in range(count):
        one, other = rng.choice(len(modules), 2, replace=False)
        if number % 2:
            first, second = rng.choice(len(modules[one]), 2, replace=False)
            yield 1, (modules[one][first], modules[one][second])
        else:
            first, second = (rng.integers(len(modules[which])) for which in (one, other))
            yield 0, (modules[one][first], modules[other][second])


ENTRIES = (
    Entry(
        "lra-retrieval",
        "pair",
        "does one paper of the ACL Anthology cite the other? up to 4,000 bytes each",
        "CC BY-NC-SA 3.0 (ACL Anthology Network)",
        "https://github.com/google-research/long-range-arena (lra_release.gz, tsv_data)",
        "a folder with new_aan_pairs.{train,eval,test}.tsv: label, id1, id2, text1, text2, without a header",
        load_official,
    ),
    Entry(
        "citations",
        "pair",
        "does one paper cite the other? any papers and citations, up to 4,000 bytes each",
        "the licence of the papers",
        "your own papers, or the ACL Anthology",
        "a folder with docs.jsonl (id, text) and citations.tsv (two ids per row), or .gz",
        load_citations,
    ),
    Entry(
        "stdlib-pairs",
        "pair",
        "are two passages of Python's standard library from one module? as bytes",
        "PSF",
        "included in the running Python",
        None,
        load_stdlib_pairs,
    ),
)
