import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lrpe import LrpeError
from lrpe.lab.data.text.tokenizer import (
    byte_level,
    encode_by_core,
    hub_tokenizer,
    learn_bpe,
    learn_words,
    load_tokenizer,
)
from tests.lab.data.texts import write_gpt2

TEXTS = ["the cat sat on the mat .\n", "the dog sat , and the cat ran .\n"] * 5
LEARNED = learn_bpe(TEXTS, 280)
BYTES = byte_level()
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize("tokenizer", [BYTES, LEARNED], ids=["bytes", "bpe"])
@given(text=TEXT)
def test_what_is_encoded_decodes_to_itself(tokenizer, text):
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode(ids) == text
    assert not np.isin(ids, tokenizer.special_ids).any()


@given(text=TEXT)
def test_bytes_are_their_own_ids_as_the_core_has_them_too(text):
    (ids,) = BYTES.encode([text])
    assert ids.tolist() == list(text.encode())
    assert encode_by_core(BYTES.core, [text])[0].tolist() == ids.tolist()


def test_special_tokens_stand_where_the_papers_models_expect_them():
    assert len(BYTES) == 260
    assert BYTES.specials["pad"] == 256
    assert len(LEARNED) == 280
    assert LEARNED.specials == {"bos": 0, "pad": 1, "eos": 2, "mask": 3}


def test_what_looks_like_a_special_token_in_a_text_is_text():
    for tokenizer in (BYTES, LEARNED):
        (ids,) = tokenizer.encode(["a </s> <mask>"])
        assert not np.isin(ids, tokenizer.special_ids).any()


def test_words_are_ranked_as_fairseq_ranks_them():
    tokenizer = learn_words(["b a a\n", "c <unk> a\n"])
    listed = [tokenizer.decode([number]) for number in range(len(tokenizer))]
    assert listed == [" <s>", " <pad>", "\n", " <unk>", " a", " b", " c", " <mask>"]
    assert [len(learn_words([text])) for text in ("a b c", "a b c d")] == [8, 16]
    (ids,) = tokenizer.encode(["a new\n<unk> c\n"])
    assert ids.tolist() == [4, 3, 2, 3, 6, 2]
    assert tokenizer.decode(ids) == " a <unk>\n <unk> c\n"


def test_the_vocabulary_of_wikitext_103_would_have_267744_entries():
    tokenizer = learn_words(f"w{number}" for number in range(267_733))
    assert len(tokenizer) == 267_744
    assert tokenizer.dtype == "uint32"
    assert tokenizer.core.token_to_id("madeupword0005") == 267_743


@given(text=st.text(st.characters(codec="ascii", exclude_characters="\x1c\x1d\x1e\x1f")))
def test_words_are_what_stands_between_spaces(text):
    (ids,) = learn_words([text]).encode([text])
    assert len(ids) == len(text.split()) + text.count("\n")


def test_a_fingerprint_tells_vocabularies_apart():
    assert learn_bpe(TEXTS, 280).fingerprint() == LEARNED.fingerprint()
    assert len({LEARNED.fingerprint(), learn_bpe(TEXTS, 270).fingerprint(), BYTES.fingerprint()}) == 3


def test_completed_adds_what_is_missing_at_the_end(tmp_path):
    gpt2 = load_tokenizer(write_gpt2(tmp_path))
    whole = gpt2.with_specials("pad", "mask")
    assert whole.specials == {"eos": len(gpt2) - 1, "pad": len(gpt2), "mask": len(gpt2) + 1}
    assert whole.encode(["the cat"])[0].tolist() == gpt2.encode(["the cat"])[0].tolist()
    assert LEARNED.with_specials("pad", "mask") is LEARNED


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2s_two_files_are_read_under_both_their_names(tmp_path, names):
    tokenizer = load_tokenizer(write_gpt2(tmp_path, *names))
    (ids,) = tokenizer.encode(["the\n"])
    assert ids.tolist() == [256, ord("e"), ord("\n")]
    assert tokenizer.eos == 257
    assert tokenizer.decode([*ids, 257]) == "the\n<|endoftext|>"


@pytest.mark.parametrize("tokenizer", [BYTES, LEARNED, learn_words(TEXTS)], ids=["bytes", "bpe", "words"])
def test_a_tokeniser_saved_beside_a_model_is_found_by_transformers(tmp_path, tokenizer):
    tokenizer.save(tmp_path)
    found = AutoTokenizer.from_pretrained(tmp_path)
    assert found("the cat\nsat")["input_ids"] == tokenizer.encode(["the cat\nsat"])[0].tolist()
    assert found.eos_token_id == tokenizer.eos
    assert found.mask_token_id == tokenizer.specials["mask"]
    for again in (load_tokenizer(tmp_path), hub_tokenizer(str(tmp_path))):
        assert again.specials == tokenizer.specials
        assert again.encode(TEXTS[:1])[0].tolist() == tokenizer.encode(TEXTS[:1])[0].tolist()


def test_what_is_no_tokeniser_is_named(tmp_path):
    with pytest.raises(LrpeError, match=r"tokenizer\.json or a folder with encoder\.json and vocab\.bpe"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(LrpeError, match="is not a valid tokeniser"):
        load_tokenizer(tmp_path)
    with pytest.raises(LrpeError, match="from this machine"):
        hub_tokenizer("nobody/has-this")
    for size in (100, 99_999_999_999):  # which would end the process
        with pytest.raises(LrpeError, match=f"SIZE must be from 260 to 1,000,000; got bpe:{size}"):
            learn_bpe(TEXTS, size)
