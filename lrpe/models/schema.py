"""The schema of LrpeConfig: one rule per field, for values from code, a command line or a file."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Any, NamedTuple

import torch
from transformers.activations import ACT2FN
from transformers.utils.quantization_config import QuantizationConfigMixin

from lrpe.attention.convolution import CONVOLUTION_ACTIVATIONS
from lrpe.attention.decay import DECAYS
from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.attention.layer import OUTPUT_GATES
from lrpe.attention.normalizer import NORMALIZERS
from lrpe.errors import LrpeError, require, unknown_name

_LARGEST = 2**31 - 1  # largest size
_MOST_LAYERS, _MOST_HEADS, _MOST_LABELS = (
    10_000,
    2**16,
    2**20,
)  # lower limits, since a list or config.json has an entry for each
_WIDEST_KERNEL = 1024  # a short convolution sees 2 to 8 tokens; each decoding state keeps all of its window
_DEEPEST = 8  # nesting of dictionaries and lists; our own files need three levels
_DTYPES = ("float64", "float32", "bfloat16", "float16")
_PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")

_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 80


class _Rule(NamedTuple):
    """A condition on a field; ``says`` completes the sentence "hidden_size must be ..."."""

    says: str
    holds: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> None:
        require(self.holds(value), lambda: f"{name} must be {self.says}; got {name}={shorten(value)}.")


class Choice(NamedTuple):
    """A condition that a field is one of ``names``, which may contain None."""

    kind: str
    names: Iterable[str | None]

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, str) and value not in self.names:
            raise unknown_name(self.kind, value, map(str, self.names))
        if not isinstance(value, str | None) or (value is None and None not in self.names):
            known = ", ".join(map(repr, self.names))
            raise LrpeError(f"{name} must be one of {known}; got {name}={shorten(value)}.")


def check_fields(values: Mapping[str, Any]) -> None:
    """Raise ``LrpeError`` for the first of these fields that breaks its rule."""
    for name, value in values.items():
        rule = FIELDS.get(name)
        if rule is not None:
            rule.check(name, value)


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file; raise ``LrpeError`` with the file's name if it holds none."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: no UTF-8, no JSON, or a number of thousands of digits
        raise LrpeError(f"{str(file)!r} is not JSON that can be read: {error}. Save or download it again.") from error
    if not isinstance(value, dict) or not is_json(value):
        raise LrpeError(f"{str(file)!r} must hold a JSON object; got {shorten(value)}. Save or download it again.")
    return value


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """Return whether the value is a finite real number that a float can hold."""
    return math.isfinite(value) if isinstance(value, float) else is_whole(value) and abs(value) < 2**1000


def is_json(value: Any, depth: int = _DEEPEST) -> bool:
    """Return whether JSON can hold the value; the limit on nesting keeps recursion from exhausting the stack."""
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(key, str) and is_json(inner, depth - 1) for key, inner in value.items())
    if isinstance(value, list):
        return depth > 0 and all(is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, str | bool) or _is_number(value)


def shorten(value: Any) -> str:
    """Return the value as text of at most 120 characters."""
    if is_whole(value) and abs(value) >= 2**64:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or more"
    text = _repr.repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _whole(least: int, most: int = _LARGEST) -> _Rule:
    limit = "" if most == _LARGEST else f" and at most {most}"
    return _Rule(
        f"a whole number of {least} or more{limit}",
        lambda value: is_whole(value) and least <= value <= min(most, _LARGEST),
    )


def _above_zero(most: float) -> _Rule:
    return _Rule(f"a number above 0 and at most {most:g}", lambda value: _is_number(value) and 0 < value <= most)


def _optional(rule: _Rule) -> _Rule:
    return _Rule(f"{rule.says}, or None", lambda value: value is None or rule.holds(value))


def _one_or_list(says: str, holds: Callable[[Any], bool]) -> _Rule:
    return _Rule(
        says, lambda value: holds(value) or (isinstance(value, list) and len(value) > 0 and all(map(holds, value)))
    )


def _labels(says: str, number_first: bool) -> _Rule:
    """Return the rule of a dictionary between label numbers and names; JSON turns numeric keys into strings."""

    def holds(value: Any) -> bool:
        pairs = value.items() if number_first else [(number, name) for name, number in value.items()]
        return all(_is_label(number) and isinstance(name, str) for number, name in pairs)

    return _optional(
        _Rule(says, lambda value: isinstance(value, dict) and 0 < len(value) <= _MOST_LABELS and holds(value))
    )


def _is_label(number: Any) -> bool:
    return (is_whole(number) and 0 <= number <= _LARGEST) or (
        isinstance(number, str) and number.isdecimal() and len(number) < 10
    )


def _is_off(value: Any) -> bool:
    return value is None or value is False


def _is_dtype(value: Any) -> bool:
    return value in _DTYPES if isinstance(value, str) else value in [getattr(torch, name) for name in _DTYPES]


_SIZE, _TOKEN = _whole(1), _whole(0)
_SWITCH = _Rule("one of (True, False)", lambda value: isinstance(value, bool))
_UNDECIDED = _Rule("one of (True, False, None)", lambda value: value is None or isinstance(value, bool))
_RATE = _Rule("a rate in [0, 1)", lambda value: _is_number(value) and 0 <= value < 1)
_TEXT = _Rule("a string", lambda value: isinstance(value, str))
_DTYPE = _optional(_Rule(f"one of {', '.join(_DTYPES)}", _is_dtype))

FIELDS: dict[str, _Rule | Choice] = {
    **dict.fromkeys(("vocab_size", "hidden_size", "head_dim"), _SIZE),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), _whole(1, _MOST_HEADS)),
    **dict.fromkeys(("intermediate_size", "max_position_embeddings", "patch_size", "num_channels"), _SIZE),
    **dict.fromkeys(("image_size", "classifier_hidden_size"), _optional(_SIZE)),
    "num_hidden_layers": _whole(1, _MOST_LAYERS),
    "attention": _one_or_list(
        "'linear', 'softmax', a pattern such as 'linear*3+softmax', or a list with one of the two for each layer",
        lambda value: isinstance(value, str),
    ),
    "encoding": _one_or_list(
        "a name, a dictionary, or a list with one of these for each layer",
        lambda value: isinstance(value, str | dict) and is_json(value),
    ),
    "decay": _Rule(
        f"one of {', '.join(DECAYS)}, a list of one r for each key head, or None",
        lambda value: (
            value is None or isinstance(value, str) or (isinstance(value, list) and all(map(_is_number, value)))
        ),
    ),
    "feature_map": Choice("feature_map", FEATURE_MAPS),
    "normalizer": Choice("normalizer", NORMALIZERS),
    "output_gate": Choice("output_gate", (None, *OUTPUT_GATES)),
    "convolution": _optional(_whole(2, _WIDEST_KERNEL)),
    "convolution_activation": Choice("convolution_activation", CONVOLUTION_ACTIVATIONS),
    "absolute_positions": Choice("absolute_positions", (None, "sinusoidal", "learned")),
    "position_layout": Choice("position_layout", ("sequence", "grid", "diagonal")),
    "norm": Choice("norm", ("rms", "layer", "batch")),
    "norm_position": Choice("norm_position", ("pre", "post")),
    "pooling": Choice("pooling", ("mean", "last", "first")),
    "hidden_act": Choice("activation", ACT2FN),
    **dict.fromkeys(("embedding_norm", "gated", "attention_bias", "mlp_bias", "tie_word_embeddings"), _SWITCH),
    **dict.fromkeys(("causal", "qkv_bias"), _UNDECIDED),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"), _RATE),
    "norm_eps": _above_zero(1.0),
    "initializer_range": _above_zero(100.0),
    "seed": _Rule("a whole number of 0 or more, below 2^63", lambda value: is_whole(value) and 0 <= value < 2**63),
    **dict.fromkeys(("pad_token_id", "bos_token_id"), _optional(_TOKEN)),
    "eos_token_id": _optional(_one_or_list("a token, or a list of tokens", _TOKEN.holds)),
    "use_cache": _SWITCH,
    "format": _SIZE,
    # what every configuration of transformers has
    "num_labels": _whole(1, _MOST_LABELS),
    "id2label": _labels("a dictionary with a name for each label, {0: 'no', 1: 'yes'}", number_first=True),
    "label2id": _labels("a dictionary with a number for each label's name, {'no': 0, 'yes': 1}", number_first=False),
    "problem_type": Choice("problem_type", (None, *_PROBLEMS)),
    "architectures": _optional(
        _Rule("a list of names", lambda value: isinstance(value, list) and all(map(_TEXT.holds, value)))
    ),
    **dict.fromkeys(("dtype", "torch_dtype"), _DTYPE),
    "output_hidden_states": _UNDECIDED,
    "return_dict": _SWITCH,
    "output_attentions": _Rule("False: linear attention never forms its weights", _is_off),
    "is_encoder_decoder": _Rule("False: these models are one stack of layers", _is_off),
    "chunk_size_feed_forward": _whole(0),
    **dict.fromkeys(("transformers_version", "model_type"), _optional(_TEXT)),
    "name_or_path": _optional(_Rule("a name or a path", lambda value: isinstance(value, str | PathLike))),
    "attn_implementation": Choice("attn_implementation", (None, "eager", "sdpa")),
    "experts_implementation": Choice("experts_implementation", (None, "eager")),
    "auto_map": _optional(_Rule("a dictionary of names", lambda value: isinstance(value, dict) and is_json(value))),
    "quantization_config": _optional(
        _Rule(
            "a dictionary or a configuration of transformers",
            lambda value: isinstance(value, QuantizationConfigMixin) or (isinstance(value, dict) and is_json(value)),
        )
    ),
}
