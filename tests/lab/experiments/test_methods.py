import pytest

from lrpe import LrpeError
from lrpe.attention import MEMBERS
from lrpe.encodings.family import FAMILY
from lrpe.lab.experiments.methods import METHODS, SETTINGS, SEVEN, find_method, row
from lrpe.models import LrpeConfig, LrpeForCausalLM, LrpeForImageClassification, LrpeForMaskedLM
from tests.models.tiny import draw_ids

TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
CAUSAL, BOTH_WAYS = TINY | {"causal": True}, TINY | {"causal": False}
IMAGE = BOTH_WAYS | {"image_size": 8, "patch_size": 2, "num_channels": 1, "position_layout": "grid"}

ALONG_A_SEQUENCE = ("spe", "selective", "selective-gated", "selective-gate-conv", "switched-gated", "mamba3")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", [*(name for name in (METHODS | FAMILY) if name != "mixed"), "fourier*unitary"])
def test_every_row_is_a_language_model_in_every_setting(name, setting):
    model = LrpeForCausalLM(LrpeConfig(**CAUSAL | row(name, setting, CAUSAL)))
    assert model(draw_ids(1, 9), labels=draw_ids(1, 9)).loss.isfinite()
    masked = LrpeForMaskedLM(LrpeConfig(**BOTH_WAYS | row(name, setting, BOTH_WAYS)))
    assert masked(draw_ids(1, 9), labels=draw_ids(1, 9)).loss.isfinite()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ALONG_A_SEQUENCE])
def test_every_row_but_some_is_a_model_of_images_in_every_setting(name, setting):
    LrpeForImageClassification(LrpeConfig(**IMAGE | row(name, setting, IMAGE)))


def test_steps_from_the_tokens_lead_along_a_sequence_not_over_a_grid():
    with pytest.raises(LrpeError, match="steps='head' needs a Λ of Type 1 or 2 along a sequence; got Grid"):
        LrpeConfig(**IMAGE | row("selective", "fair", IMAGE)).check()


def test_the_fair_setting_has_one_normaliser_and_one_feature_map_for_the_papers_rows():
    rows = [LrpeConfig(**CAUSAL | row(name, "fair", CAUSAL)) for name in SEVEN]
    assert {(config.normalizer, config.feature_map) for config in rows} == {("plain", "elu+1")}
    assert [config.absolute_positions for config in rows] == ["sinusoidal", *[None] * 6]
    assert {row(name, "absolute", CAUSAL)["absolute_positions"] for name in SEVEN} == {"sinusoidal"}
    learned = CAUSAL | {"absolute_positions": "learned"}
    assert {row(name, "absolute", learned)["absolute_positions"] for name in SEVEN} == {"learned"}


@pytest.mark.parametrize("name", ["retnet", "lrpe-d", "mamba3", "pope"])
def test_members_keep_their_decay_in_the_fair_setting_and_in_the_authors_have_the_parts_they_were_published_with(name):
    fair, authors = (LrpeConfig(**CAUSAL | row(name, setting, CAUSAL)) for setting in ("fair", "authors"))
    published = MEMBERS[name]
    assert fair.decay == authors.decay == published.decay
    assert fair.normalizer == "plain"
    assert authors.feature_map == published.feature_map
    assert fair.feature_map == ("softplus" if name == "pope" else "elu+1")
    assert name == "pope" or authors.normalizer == published.normalizer


def test_the_authors_setting_has_their_normalisers_and_their_permutation():
    normalizers = {name: row(name, "authors", CAUSAL)["normalizer"] for name in SEVEN}
    assert normalizers == {"base": "plain"} | dict.fromkeys(("rope", "spe", "per"), "encoded") | dict.fromkeys(
        ("type1", "type2", "type3"), "output"
    )
    per = LrpeConfig(**CAUSAL | row("per", "authors", CAUSAL))
    assert per.layer_encoding(0).heads is None
    assert per.layer_decay(0) == pytest.approx([0.880797, 0.970688], abs=1e-6)
    assert LrpeConfig(**BOTH_WAYS | row("per", "authors", BOTH_WAYS)).layer_decay(0) is None


def test_on_images_the_authors_add_row_and_column_and_divide_by_what_is_not_encoded():
    fields = {name: row(name, "authors", IMAGE) for name in ("rope", "per", "type2")}
    assert {each["position_layout"] for each in fields.values()} == {"diagonal"}
    assert [each["normalizer"] for each in fields.values()] == ["plain", "plain", "output"]
    assert "position_layout" not in row("rope", "fair", IMAGE)


def test_mixed_axes_stay_on_the_grid_in_every_setting_and_need_images():
    for setting in SETTINGS:
        config = LrpeConfig(**IMAGE | row("mixed", setting, IMAGE))
        assert (config.position_layout, config.layer_encoding(0).mixed_axes) == ("grid", True)
    with pytest.raises(LrpeError, match="needs a column of images"):
        row("mixed", "fair", CAUSAL)


def test_an_unknown_row_or_setting_is_named_with_the_nearest():
    with pytest.raises(LrpeError, match="Did you mean 'type2'"):
        find_method("tpye2")
    with pytest.raises(LrpeError, match=r"no setting named 'faire'\. Did you mean 'fair'"):
        row("type2", "faire", CAUSAL)
