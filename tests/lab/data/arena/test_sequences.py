import pickle

import numpy as np
import pytest

from lrpe.lab.data.arena.sequences import Pairs, Sequences, hold, sequence_facts, store
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.jobs import in_parallel

ROWS = [(1, (b"one",)), (0, (b"",)), (1, (b"three",)), (2, (b"4",))]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def listed(split):
    return [(sample["label"], bytes(sample["ids"])) for sample in (split.sample(Draw(i)) for i in range(len(split)))]


def test_what_is_stored_is_what_is_held():
    split = store(Sequences, "rows", {}, {"train": lambda: ROWS})[0]["train"]
    assert listed(split) == listed(hold(Sequences, ROWS)) == [(label, text) for label, (text,) in ROWS]
    assert isinstance(split.ids, np.memmap)
    assert split.balance() == [1, 2, 1]


def test_a_part_is_samples_in_a_row():
    assert listed(hold(Sequences, ROWS).part(1, 3)) == [(0, b""), (1, b"three")]


def test_a_pair_is_two_neighbours():
    split = hold(Pairs, [(0, (b"a", b"bc")), (1, (b"", b"d"))])
    assert len(split) == 2
    sample = split.sample(Draw(1))
    assert (bytes(sample["ids"]), bytes(sample["pair_ids"]), sample["label"]) == (b"", b"d", 1)


def test_a_split_of_nothing_can_be_stored():
    split = store(Sequences, "nothing", {}, {"train": lambda: []})[0]["train"]
    assert len(split) == 0
    assert sequence_facts({"train": split}, 9, 2, None)["longest"] == 0


def test_a_memory_map_goes_to_another_process_by_its_name():
    split = store(Sequences, "long", {}, {"train": lambda: [(0, (bytes(100_000),)), (1, (b"end",))]})[0]["train"]
    sent = pickle.dumps(split.part(1, 2))
    assert len(sent) < 2_000
    assert listed(pickle.loads(sent)) == [(1, b"end")]
    assert listed(pickle.loads(pickle.dumps(hold(Sequences, ROWS)))) == listed(hold(Sequences, ROWS))


@pytest.mark.parametrize("processes", [None, 1, 3])
def test_work_that_is_shared_out_comes_back_in_order(processes):
    assert list(in_parallel(str, range(7), "numbers", processes)) == list("0123456")
    assert list(in_parallel(str, [], "nothing", processes)) == []
