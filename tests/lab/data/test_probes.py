"""Every answer of a probe is what a solver finds that reads the sequence as text, apart from the generator."""

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from lrpe.errors import LrpeError
from lrpe.lab.data.catalog import CATALOG, load
from lrpe.lab.data.dataset import Dataset, Draw

OPTIONS = {
    "parity": {"length": 9, "times": 3},
    "s3": {"length": 12, "times": 2},
    "flip-flop": {"length": 30},
    "copying": {"length": 7, "times": 3, "alphabet": 30},
    "fixed-offset": {"length": 12, "offset": 5, "alphabet": 4},
    "indirect-indexing": {"length": 11, "shift": 4, "alphabet": 14, "questions": 6},
    "mqar": {"length": 20, "pairs": 4, "keys": 9, "times": 2},
    "duplicate-keys": {"pairs": 3, "repeats": 3, "keys": 20, "times": 2},
    "associative-recall": {"pairs": 5, "keys": 11, "times": 2},
}
Tokens = list[str]


def solve_parity(before: Tokens) -> str:
    return "1" if len([token for token in before if token == "1"]) % 2 else "0"


def solve_s3(before: Tokens) -> str:
    places = [0, 1, 2]
    for permutation in before[1:]:
        places = [int(permutation[place]) for place in places]
    return "".join(map(str, places))


def solve_flip_flop(before: Tokens) -> str:
    memory = ""
    for instruction, bit in zip(before[:-1:2], before[1::2], strict=True):
        memory = bit if instruction == "write" else memory
    return memory


def solve_copying(before: Tokens) -> str:
    middle = before.index("copy")
    return before[len(before) - middle - 1]


def solve_indirect_indexing(before: Tokens) -> str:
    text = before[: next(i for i, token in enumerate(before) if token[0] in "+-")]
    distance, letter = before[-2:]
    return text[text.index(letter) + int(distance)]


def solve_recall(before: Tokens) -> str:
    asked = before[-1]
    return [value for key, value in pairwise(before) if key == asked and value[0] == "v"][-1]


SOLVERS: dict[str, Callable[[Tokens], str]] = {
    "parity": solve_parity,
    "s3": solve_s3,
    "flip-flop": solve_flip_flop,
    "copying": solve_copying,
    "fixed-offset": lambda before: before[-1 - OPTIONS["fixed-offset"]["offset"]],
    "indirect-indexing": solve_indirect_indexing,
    "mqar": solve_recall,
    "duplicate-keys": solve_recall,
    "associative-recall": solve_recall,
}


def find_values(before: Tokens) -> set[str]:
    return {token for token in before if token[0] == "v"}


def find_other_letters(before: Tokens) -> set[str]:
    return {token for token in before if token[0] not in "+-"} - {before[-1]}


FORMS: dict[str, Callable[[Tokens], set[str]]] = {  # the answers that the form of the task allows
    "parity": lambda before: {"0", "1"},
    "s3": lambda before: {"012", "021", "102", "120", "201", "210"},
    "flip-flop": lambda before: {"0", "1"},
    "copying": lambda before: {*"abcdefghijklmnopqrstuvwxyz", "a1", "b1", "c1", "d1"},
    "fixed-offset": lambda before: set("abcd"),
    "indirect-indexing": find_other_letters,
    "mqar": find_values,
    "duplicate-keys": find_values,
    "associative-recall": find_values,
}


def read(dataset: Dataset, split: str, index: int) -> list[tuple[Tokens, str]]:
    """Return each question as the tokens up to it, and its answer, from the sample as text."""
    shown = dataset.show(dataset.splits[split].sample(Draw(index))).split()
    parts = [re.fullmatch(r"([^\[]+)(?:\[(.+)\])?", word) for word in shown]
    assert all(parts)
    tokens = [part[1] for part in parts if part]
    return [(tokens[: t + 1], part[2]) for t, part in enumerate(parts) if part and part[2] is not None]


@pytest.fixture(params=SOLVERS)
def probe(request) -> Dataset:
    return load(request.param, **OPTIONS[request.param], train=50, test=20)


def test_every_probe_of_the_catalogue_is_solved_here():
    assert set(SOLVERS) == {entry.name for entry in CATALOG.values() if entry.kind == "tokens"}


def test_every_answer_is_what_the_solver_finds(probe):
    for split in probe.splits:
        for index in range(20):
            questions = read(probe, split, index)
            assert questions
            assert [SOLVERS[probe.name](before) for before, _ in questions] == [answer for _, answer in questions]


def test_chance_is_a_guess_among_the_answers_that_the_form_allows(probe):
    for split, level in probe.facts["chance"].items():
        for index in range(5):
            for before, answer in read(probe, split, index):
                allowed = FORMS[probe.name](before)
                assert level == pytest.approx(1 / len(allowed))
                assert answer in allowed


@pytest.mark.parametrize(
    "probe", [name for name in SOLVERS if name not in ("flip-flop", "indirect-indexing")], indirect=True
)
def test_the_longer_split_is_as_much_longer_as_asked(probe):
    asked = [len(read(probe, split, 0)) for split in ("validation", "longer")]
    times = OPTIONS[probe.name].get("times", 8)
    extra = OPTIONS[probe.name].get("offset", 0) * (times - 1)  # the first tokens have nothing that far back
    assert asked[1] == times * asked[0] + extra


def test_a_sample_depends_on_its_draw_alone_and_is_never_a_sample_of_training(probe):
    train, held = probe.splits["train"], probe.splits["validation"]
    assert same(train.sample(Draw(3, 1, 2)), train.sample(Draw(3, 1, 2)))
    assert same(held.sample(Draw(3)), held.sample(Draw(3, epoch=5, seed=7)))
    others = [train.sample(draw) for draw in (Draw(3), Draw(4), Draw(3, epoch=1), Draw(3, seed=1))]
    others += [split.sample(Draw(3)) for name, split in probe.splits.items() if name != "train"]
    for i, one in enumerate(others):
        assert not any(same(one, other) for other in others[:i])


def same(one: dict, other: dict) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in ("ids", "targets"))


def test_flip_flops_differ_in_what_they_ignore():
    dataset = load("flip-flop", length=400, train=1, test=4)
    shares = {
        split: np.mean([dataset.show(dataset.splits[split].sample(Draw(i))).count("ignore") / 400 for i in range(4)])
        for split in ("validation", "sparse", "dense")
    }
    assert shares == pytest.approx({"validation": 0.8, "sparse": 0.98, "dense": 0.1}, abs=0.05)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fixed-offset", {"length": 4, "offset": 4}, "offset must be below length; got offset=4, length=4"),
        ("indirect-indexing", {"length": 60}, "length must be at most alphabet"),
        ("indirect-indexing", {"length": 5, "shift": 5}, "shift must be below length"),
        ("mqar", {"pairs": 100}, "length must be at least 3 · pairs"),
        ("duplicate-keys", {"keys": 10}, "keys must be at least times · pairs · repeats"),
        ("associative-recall", {"keys": 10}, "keys must be at least times · pairs"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, options, words):
    with pytest.raises(LrpeError, match=words):
        load(name, **options)
