"""Retrieval from any graph of citations: papers as JSON lines, and pairs of which one cites the other.

A paper is in one split, by a hash of its id; a pair whose papers are in two splits is left out. For each pair that
cites there is one that does not: the same first paper, with another of its split that it does not cite.
"""

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.byte_text import byte_facts, require_length, show_with
from lrpe.lab.data.arena.lra_retrieval import LABELS
from lrpe.lab.data.arena.sequences import Pairs, Row, held
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset
from lrpe.lab.data.entry import Entry
from lrpe.lab.data.reading import found, lines
from lrpe.typed import Count, Seed

SHARES = {"validation": (0, 1, 2), "test": (3, 4, 5)}  # of twenty; the rest is for training


def load(path: Path, length: Count = 4000, seed: Seed = 0) -> Dataset:
    """The first ``length`` bytes of each paper; papers without text are left out, and counted."""
    require_length(length)
    papers_file, pairs_file = found(path, "docs.jsonl"), found(path, "citations.tsv")
    papers, empty = read_papers(papers_file)
    citing = read_pairs(pairs_file)
    splits = {name: held(Pairs, pairs(papers, citing, name, length, seed)) for name in ("train", "validation", "test")}
    known = byte_facts(splits, LABELS, papers=len(papers), empty=empty, citations=len(citing))
    known["content"] = hash_files(papers_file, pairs_file)
    return Dataset("citations", {**splits}, known, partial(show_with, LABELS))


def read_papers(file: Path) -> tuple[dict[str, bytes], int]:
    """Texts by id, and how many papers have none."""
    papers = [parse(line, f"{str(file)!r}, line {number}") for number, line in lines(file) if line.strip()]
    texts = {name: text for name, text in papers if text.strip()}
    return texts, len(papers) - len(texts)


def parse(line: bytes, said: str) -> tuple[str, bytes]:
    try:
        paper = json.loads(line)
        return str(paper["id"]), paper["text"].encode("utf-8", errors="replace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LrpeError(f"{said}: a paper is a JSON object with id and text; got {line[:60]!r}.") from None


def read_pairs(file: Path) -> list[tuple[str, str]]:
    found = []
    for number, line in lines(file):
        ids = line.decode("utf-8", errors="replace").split("\t")
        require(len(ids) == 2, f"{str(file)!r}, line {number}: a row is two ids; got {len(ids)} columns.")
        found.append((ids[0], ids[1]))
    return found


def split_of(paper: str) -> str:
    share = int(sha256(paper.encode()).hexdigest(), 16) % 20
    return next((name for name, shares in SHARES.items() if share in shares), "train")


def pairs(papers: dict[str, bytes], citing: list[tuple[str, str]], split: str, length: int, seed: int) -> Iterator[Row]:
    here = sorted(paper for paper in papers if split_of(paper) == split)
    known = set(here)
    inside = sorted({(one, other) for one, other in citing if one != other and one in known and other in known})
    related = {*inside, *((other, one) for one, other in inside), *((paper, paper) for paper in here)}
    rng = np.random.default_rng(seed)
    require(
        len(inside) > 0, f"Some papers of {split} cite each other; none of {len(here)} does: the graph is too small."
    )
    for one, other in inside:
        strangers = [paper for paper in here if (one, paper) not in related]
        if strangers:
            stranger = strangers[rng.integers(len(strangers))]
            yield 1, (papers[one][:length], papers[other][:length])
            yield 0, (papers[one][:length], papers[stranger][:length])


ENTRIES = (
    Entry(
        "citations",
        "pair",
        "does one paper cite the other? any papers and citations, byte by byte, up to 4,000 each",
        "that of the papers",
        "your own papers, or the ACL Anthology",
        "a folder with docs.jsonl (id, text) and citations.tsv (two ids a row), or .gz",
        load,
    ),
)
