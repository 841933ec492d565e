"""A replaced model is exported with a card, or refused with a reason."""

import pytest
import torch

import lrpe
from lrpe.adapt import from_pretrained, replace_attention, replace_rotary
from lrpe.adapt.export import export
from lrpe.lab.cli import main
from tests.adapt.models import logits, make, text

CARDS = {
    "rotary": (lambda: replace_rotary(make("llama")), ["its own attention", "Type 2 with its own rotary angles"]),
    "hybrid": (
        lambda: replace_attention(make("llama"), "linear", "type3", layers=[1]),
        ["linear attention in layers 1", "Encoding: Type 3, P householder, Λ permutation"],
    ),
    "gpt-2": (lambda: replace_attention(make("gpt-2")), ["linear attention in all layers", "Encoding: none, beside"]),
    "given": (
        lambda: replace_attention(make("llama"), encoding=lrpe.configure("fourier*unitary", 8)),
        ["Encoding: Type 1, P fourier, Λ unitary, fixed geometric angles"],
    ),
}


@pytest.mark.parametrize("card", CARDS)
def test_a_replaced_model_is_exported_with_a_card_that_says_how_to_load_it(card, tmp_path):
    make_model, sentences = CARDS[card]
    model = make_model()
    model.save_pretrained(tmp_path / "run" / "best")
    (tmp_path / "run" / "best" / "credentials.txt").write_text("a secret")
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "out")]) == 0
    written = (tmp_path / "out" / "README.md").read_text()
    assert 'model = lrpe.adapt.from_pretrained("out")' in written
    assert all(sentence in written for sentence in sentences)
    assert not (tmp_path / "out" / "credentials.txt").exists()
    assert torch.equal(logits(from_pretrained(tmp_path / "out"), text()), logits(model, text()))


def test_the_code_of_a_replaced_model_is_refused(tmp_path):
    replace_rotary(make("llama")).save_pretrained(tmp_path / "model")
    with pytest.raises(lrpe.LrpeError, match="remote_code must be False for a replaced model"):
        export(tmp_path / "model", tmp_path / "out", remote_code=True)
    assert not (tmp_path / "out").exists()
