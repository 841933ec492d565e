"""Whatever a configuration is given, it ends in an LrpeError or in a model that runs."""

import contextlib
import inspect
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import configuration_utils

from lrpe import LrpeError
from lrpe.models import LrpeConfig, LrpeForCausalLM, LrpeForImageClassification, LrpeForMaskedLM
from lrpe.models.schema import FIELDS, shorten
from tests.models.tiny import ENCODINGS

SIZES = {
    "vocab_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
    "patch_size": 4,
    "num_channels": 1,
}


def nested(depth: int, around: Any = list) -> Any:
    value: Any = around()
    for _ in range(depth):
        value = [value] if around is list else {"a": value}
    return value


NASTY = (
    None, True, False, math.nan, math.inf, -math.inf, -1, 0, 1, 3, 10**18, 2**63, 10**400, -(10**30), 0.5, 1e300,
    1e-320,
    "", "x", "spread", "type2", "x" * 5000, b"x", [], {}, [None], ["a"], [math.nan] * 4, [0.5] * 4, ["linear", "bad"],
    {"a": 1}, {1: 2}, {None: None}, {"name": None}, {"name": "type2", "seed": "a"}, {"name": "spe", "sines": 10**18},
    {"name": "type2", "heads": 10**18}, {"name": "rope", "scaling": {"kind": "yarn"}}, {"key_heads": 3}, (1, 2),
    object(), int, torch.tensor(1.0), torch.float16, nested(3000), nested(3000, dict),
)  # fmt: skip

SANE: dict[str, list[Any]] = {
    "hidden_size": [4, 8, 12, 30],
    "num_attention_heads": [1, 2, 4],
    "num_key_value_heads": [None, 1, 2],
    "head_dim": [None, 1, 2, 3, 7],
    "attention": ["linear", "softmax", ["softmax", "linear"]],
    "encoding": [*ENCODINGS, ["type1", "rope"], {"name": "type2", "heads": 4, "reflections": 2}, {"alternating": 2}],
    "feature_map": ["favor+", "relu"],
    "normalizer": ["encoded", "output", "output-rms-head"],
    "decay": [None, "spread", [0.5], [0.5, 1.0, 0.9, 0.1]],
    "causal": [True, False],
    "absolute_positions": ["sinusoidal", "learned"],
    "position_layout": ["sequence", "grid", "diagonal"],
    "norm": ["rms", "batch"],
    "norm_position": ["post"],
    "pooling": ["last", "first"],
    "image_size": [None, 8, 16],
    "classifier_hidden_size": [3],
    "num_labels": [1, 5],
    "gated": [False],
}


@torch.no_grad()
def run(config: LrpeConfig) -> None:
    if config.image_size is not None:
        side = config.image_size
        model: Any = LrpeForImageClassification(config).eval()
        logits = model(torch.randn(2, config.num_channels, side, side))[0]
        assert logits.shape == (2, config.num_labels)
        return
    model = (LrpeForMaskedLM if config.causal is False else LrpeForCausalLM)(config).eval()
    assert model(torch.arange(10).view(2, 5) % config.vocab_size)[0].shape == (2, 5, config.vocab_size)


def ends_well(fields: dict[str, Any]) -> None:
    with contextlib.suppress(LrpeError):
        run(LrpeConfig(**SIZES | fields))


@pytest.mark.parametrize("field", FIELDS)
def test_a_nasty_value_in_any_field_ends_in_a_sentence_or_in_a_model(field):
    for value in NASTY:
        ends_well({field: value})


OF_IMAGES = ["image_size", "patch_size", "num_channels", "position_layout", "absolute_positions", "pooling", "decay"]


@pytest.mark.parametrize("field", OF_IMAGES)
def test_a_nasty_value_in_a_model_of_images_ends_so_too(field):
    for value in NASTY:
        ends_well({"image_size": 8, "decay": None, field: value})


sane = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in SANE.items()})
nasty = st.dictionaries(st.sampled_from(sorted(FIELDS)), st.sampled_from(NASTY), max_size=1)


@settings(max_examples=60, deadline=None)
@given(sane, nasty)
@example({"image_size": 8, "position_layout": "diagonal"}, {})
def test_any_combination_of_fields_ends_in_a_sentence_or_in_a_model(fields, beside):
    ends_well(fields | beside)


def test_every_field_has_a_rule():
    named = set(inspect.signature(LrpeConfig.__init__).parameters) - {"self", "kwargs"}
    assert named <= set(FIELDS)
    assert set(LrpeConfig().to_dict()) <= set(FIELDS) | {"model_type", "_name_or_path"}


@pytest.mark.parametrize("layout", ["grid", "diagonal"])
def test_a_decay_needs_patches_in_a_sequence(layout):
    with pytest.raises(LrpeError, match=f"position_layout='{layout}'. Pass decay=None"):
        LrpeConfig(image_size=32, position_layout=layout, decay="spread")
    assert LrpeConfig(image_size=32, position_layout=layout).decay is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 2**30, "num_attention_heads": 4}, r"at most 2\^40 weights; these sizes give about"),
        ({"hidden_size": 10**400}, r"hidden_size=2\^1328 or more"),
        ({"absolute_positions": "sinusoidal", "hidden_size": 15, "num_attention_heads": 3}, "multiple of 4"),
        ({"eos_token_id": [3, 12]}, r"eos_token_id must be below vocab_size=12; got eos_token_id=\[3, 12\]"),
        ({"encoding": {"name": "linear*orthogonal"}}, "no encoding named 'linear.orthogonal'"),
        ({"encoding": {"name": "type2", "rotated": 3}}, "rotated must be even"),
        ({"seed": 2**63 - 1, "encoding": {"seed": 2**64 - 1}}, r"seed must be None or from 0 to 2\^64 - 1"),
        ({"id2label": {0: "a", "b": "c"}}, "id2label must be a dictionary with a name for each label"),
        ({"dtype": "int8"}, "dtype must be one of float64"),
        ({"output_attentions": True}, "never forms its weights"),
    ],
)
def test_a_field_that_cannot_be_is_named_with_its_value(changes, message):
    with pytest.raises(LrpeError, match=message):
        LrpeConfig(**SIZES | changes)


DAMAGED = {
    "cut": '{"model_type": "lrpe",',
    "bytes": "\udcff",
    "deep": '{"encoding": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep but whole": json.dumps({"encoding": nested(50)}),
    "a list": "[1, 2]",
    "nothing": "null",
    "long number": '{"hidden_size": ' + "9" * 5000 + "}",
    "empty": "",
    "wrong type": '{"hidden_size": {"a": 1}}',
    "type of type": '{"model_type": ["lrpe"]}',
    "format": '{"format": "one"}',
    "truth as format": '{"format": true}',
    "labels": '{"id2label": {"x": "y"}}',
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused_in_a_sentence(damage, tmp_path):
    (tmp_path / "config.json").write_bytes(DAMAGED[damage].encode(errors="surrogateescape"))
    with pytest.raises(LrpeError) as error:
        LrpeConfig.from_pretrained(tmp_path)
    assert len(str(error.value)) < 400


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FIELDS)),
    st.sampled_from([value for value in NASTY if isinstance(value, str | int | float | None | list)]),
)
def test_a_file_with_a_nasty_value_is_refused_in_a_sentence_or_read(tmp_path_factory, field, value):
    folder = tmp_path_factory.mktemp("saved")
    try:
        text = json.dumps(SIZES | {"model_type": "lrpe", field: value})
    except RecursionError:
        return
    (folder / "config.json").write_text(text)
    with contextlib.suppress(LrpeError):
        run(LrpeConfig.from_pretrained(folder))


def test_long_and_deep_values_are_shown_short():
    for value in NASTY:
        assert len(shorten(value)) <= 120


def test_a_configuration_that_is_right_is_made_in_silence(monkeypatch):
    for name in ("warning", "warning_once"):
        monkeypatch.setattr(configuration_utils.logger, name, lambda text, *_: pytest.fail(text))
    LrpeConfig(**SIZES).check()
