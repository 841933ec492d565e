import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.text.masking import make_masking
from lrpe.lab.data.text.text_dataset import UNSCORED
from lrpe.lab.data.text.tokenizer import byte_level, learn_bpe, learn_words

BYTES = byte_level()
MASK = BYTES.specials["mask"]


def test_of_the_chosen_tokens_80_percent_are_masked_10_replaced_and_10_left():
    ids = np.random.default_rng(0).integers(0, 256, 100_000)
    hidden, labels = make_masking(BYTES).hide(ids, Draw(0).generator())
    chosen = labels != UNSCORED
    assert abs(chosen.sum() - 15_000) <= 1
    assert (hidden[~chosen] == ids[~chosen]).all()
    assert (labels[chosen] == ids[chosen]).all()
    share = {"masked": hidden == MASK, "left": hidden == ids, "other": (hidden != ids) & (hidden != MASK)}
    found = {name: (where & chosen).sum() / chosen.sum() for name, where in share.items()}
    assert found == pytest.approx({"masked": 0.8, "left": 0.1, "other": 0.1}, abs=0.015)
    assert hidden[share["other"]].max() < 256


@given(ids=st.lists(st.integers(0, 259), min_size=1, max_size=80), seed=st.integers(0, 99), rate=st.floats(0.01, 0.99))
def test_special_tokens_are_never_hidden_nor_put_in_place_of_others(ids, seed, rate):
    given_ids = np.array(ids)
    special = given_ids >= 256
    hidden, labels = make_masking(BYTES, rate).hide(given_ids, Draw(0, 0, seed).generator())
    assert (hidden[special] == given_ids[special]).all()
    assert (labels[special] == UNSCORED).all()
    put = hidden[hidden != given_ids]
    assert np.isin(put[put >= 256], [MASK]).all()
    assert abs((labels != UNSCORED).sum() - rate * (~special).sum()) < 1


def test_a_draw_decides_what_is_hidden():
    ids, drawn = np.arange(200), make_masking(BYTES)
    found = [
        drawn.hide(ids, draw.generator())[0].tolist()
        for draw in (Draw(1), Draw(1), Draw(2), Draw(1, epoch=1), Draw(1, seed=1))
    ]
    assert found[0] == found[1]
    assert len({tuple(each) for each in found}) == 4


TEXT = "the cat sat on the mat and\nthe dog ran to the door\n"
LEARNED = learn_bpe([TEXT], 264)


@pytest.mark.parametrize("tokenizer", [BYTES, LEARNED, learn_words([TEXT])], ids=["bytes", "bpe", "words"])
def test_whole_words_are_hidden_whole(tokenizer):
    (ids,) = tokenizer.encode([TEXT])
    drawn = make_masking(tokenizer, rate=0.3, whole_words=True)
    numbers = drawn.number_words(ids)
    found = [tokenizer.decode(ids[numbers == number]).strip() for number in np.unique(numbers)]
    assert [word for word in found if word] == TEXT.split()
    for seed in range(20):
        chosen = drawn.choose(ids, Draw(0, 0, seed).generator())
        assert all(len(set(chosen[(numbers == n) & drawn.hidable[ids]])) <= 1 for n in np.unique(numbers))
        assert chosen.any()


def test_a_special_token_is_no_part_of_a_word():
    drawn = make_masking(BYTES, whole_words=True)
    assert drawn.number_words(np.array([97, 98, BYTES.eos, 99])).tolist() == [0, 0, 1, 2]


def test_a_rate_that_is_no_share_is_refused():
    with pytest.raises(LrpeError, match="0 < rate < 1; got rate=15"):
        make_masking(BYTES, rate=15)
