import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.text.text_dataset import UNSCORED, Stream, Windows

END = 9


def stream(folder, lengths):
    """Documents of these lengths; their tokens are 10, 11, ..., the last of each END."""
    ids = np.arange(10, 10 + sum(lengths), dtype=np.uint16)
    ends = np.cumsum([0, *lengths])
    ids[ends[1:] - 1] = END
    file = folder / "train.tokens"
    file.write_bytes(ids.tobytes())
    return Stream(file, "uint16", END, np.array([ends, 2 * ends, 3 * ends], dtype=np.float64))


def samples(windows):
    return [windows.sample(Draw(index)) for index in range(len(windows))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@given(lengths=LENGTHS, length=st.integers(1, 12), data=st.data())
def test_every_token_is_scored_once_from_the_tokens_before_it(folder, lengths, length, data):
    tokens = stream(folder, lengths)
    stride = data.draw(st.integers(1, length))
    found = samples(Windows(tokens, length, stride))
    scored = np.concatenate([sample["labels"][sample["labels"] != UNSCORED] for sample in found])
    everything = tokens.read(0, len(tokens))
    assert scored.tolist() == everything.tolist()
    for number, sample in enumerate(found):
        begin = max(0, (number + 1) * stride - length)
        given_before = tokens.read(begin - 1, begin - 1 + len(sample["input_ids"]))
        assert sample["input_ids"].tolist() == given_before.tolist()
        assert len(sample["labels"]) == len(sample["input_ids"]) <= length
    assert np.isclose(sum(sample["words"] for sample in found), 2 * len(tokens))
    assert np.isclose(sum(sample["bytes"] for sample in found), 3 * len(tokens))


@given(lengths=LENGTHS, length=st.integers(1, 12))
def test_a_packed_window_numbers_its_documents(folder, lengths, length):
    tokens = stream(folder, lengths)
    for sample in samples(Windows(tokens, length, packed=True)):
        starts = sample["input_ids"][1:] == END  # what follows the end of a document belongs to the next one
        assert sample["sequences"].tolist() == [0, *np.cumsum(starts)]


def test_windows_follow_one_another_without_context_unless_they_overlap(folder):
    tokens = stream(folder, [7])
    alone = [sample["labels"].tolist() for sample in samples(Windows(tokens, 3))]
    assert alone == [[10, 11, 12], [13, 14, 15], [END]]
    assert [len(sample["labels"]) for sample in samples(Windows(tokens, 3, whole=True))] == [3, 3]
    carried = [sample["labels"].tolist() for sample in samples(Windows(tokens, 3, stride=1))]
    assert carried[:3] == [[10], [UNSCORED, 11], [UNSCORED, UNSCORED, 12]]
    assert carried[-1] == [UNSCORED, UNSCORED, END]


def test_the_first_token_follows_the_end_of_a_document(folder):
    assert Windows(stream(folder, [4]), 2).sample(Draw(0))["input_ids"].tolist() == [END, 10]


def test_a_worker_is_sent_the_name_of_the_file_and_not_its_tokens(folder):
    windows = Windows(stream(folder, [60_000]), 8)
    windows.sample(Draw(0))  # which has the file open from then on
    sent = pickle.dumps(windows)
    assert len(sent) < 5_000
    assert pickle.loads(sent).sample(Draw(3))["labels"].tolist() == windows.sample(Draw(3))["labels"].tolist()


@pytest.mark.parametrize(("length", "stride"), [(4, 5), (4, 0), (0, None)])
def test_a_stride_that_leaves_tokens_out_is_refused(folder, length, stride):
    with pytest.raises(LrpeError, match=r"stride must be in 1 \.\.\. length"):
        Windows(stream(folder, [4]), length, stride)
