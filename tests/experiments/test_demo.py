import re

import numpy as np
import pytest

from lrpe import LrpeError
from lrpe.cli import main
from lrpe.experiments.baselines import bigram_bits, unigram_bits
from lrpe.experiments.methods import METHODS, SEVEN, as_the_authors_ran_it, fair
from lrpe.models import LrpeConfig, LrpeForCausalLM
from tests.models.tiny import draw_ids

TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.mark.parametrize("setting", [fair, as_the_authors_ran_it])
@pytest.mark.parametrize("row", METHODS)
def test_every_row_is_a_model_in_both_settings(row, setting):
    model = LrpeForCausalLM(LrpeConfig(**TINY, **setting(row)))
    assert model(draw_ids(1, 9), labels=draw_ids(1, 9)).loss.isfinite()


def test_the_fair_setting_has_one_normaliser_and_one_feature_map_for_the_papers_rows():
    rows = [LrpeConfig(**TINY, **fair(row)) for row in SEVEN]
    assert {(row.normalizer, row.feature_map) for row in rows} == {("plain", "elu+1")}
    assert [row.absolute_positions for row in rows] == ["sinusoidal", *[None] * 6]
    assert all(fair(row, "learned")["absolute_positions"] == "learned" for row in SEVEN)


def test_an_unknown_row_is_named_with_the_nearest():
    with pytest.raises(LrpeError, match="Did you mean 'type2'"):
        fair("tpye2")


def test_counts_have_the_entropy_that_they_should():
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 4, 40_000)
    assert unigram_bits(ids, ids, 4) == pytest.approx(2, abs=0.01)
    chain = np.cumsum(generator.integers(0, 2, 40_000)) % 4  # each token stays or is followed by the next: 1 bit
    assert bigram_bits(chain[:30_000], chain[30_000:35_000], chain[35_000:], 4) == pytest.approx(1, abs=0.05)


def test_the_demo_trains_every_row_prints_the_table_and_writes_the_page(tmp_path, capsys):
    command = ["demo", "--out", str(tmp_path), "--updates", "6", "--processes", "1", "--windows", "32"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for row in SEVEN:
        assert re.search(rf"^{METHODS[row].title}\s+\d\.\d{{3}}", shown, re.MULTILINE), row
    assert "bigrams, counted" in shown
    assert "not the paper's experiment" in shown
    page = next(tmp_path.rglob("index.html")).read_text(encoding="utf-8")
    assert page.count("<tr>") == 1 + len(SEVEN) + 2
    assert "<svg" in page
    assert not re.search(r"<script|https?://(?!www\.w3\.org)", page)
    assert main(["demo", "--updates", "2"]) == 2
