"""An experiment is written whole, and what is changed of it has a folder of its own."""

from dataclasses import replace

import pytest

from lrpe import LrpeError
from lrpe.lab.cli.words import read_dotted
from lrpe.lab.experiments.build import build_config
from lrpe.lab.experiments.columns import glue, stdlib
from lrpe.lab.experiments.experiment import Experiment, apply_changes, from_dict, to_dict, upgrade
from lrpe.lab.experiments.methods import METHODS
from lrpe.lab.experiments.scale import smoke
from lrpe.lab.training.record import describe_differences
from lrpe.serialization import parse_yaml


def small(method: str = "recommended") -> Experiment:
    return smoke(stdlib(method)).with_data({})


def test_what_is_written_is_read_back():
    assert from_dict(to_dict(small())) == small()


def test_what_is_written_has_every_field_of_the_model_as_it_comes_to_be():
    resolved = to_dict(small())["resolved"]
    assert (resolved["decay"], resolved["norm_eps"], resolved["hidden_size"]) == ("gated", 1e-5, 16)
    assert to_dict(apply_changes(small(), read_dotted({"model.decay": "null"})))["resolved"]["decay"] is None


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "smoke-fair"),
        ({"training.workers": "2", "training.micro_batch": "1"}, "smoke-fair"),
        ({"training.seed": "0", "model": "{}"}, "smoke-fair"),
        ({"model.decay": "null"}, "smoke-fair-decay-null-"),
        ({"model.encoding": "{}"}, "smoke-fair-encoding-"),
        ({"training.optimization.rate": "2e-3", "scored": "1"}, "smoke-fair-scored-1-rate-0.002-"),
        ({"variant": "mine", "model.decay": "null"}, "smoke-fair-mine"),
    ],
)
def test_a_folder_is_named_after_what_is_changed(changes, name):
    found = apply_changes(small(), read_dotted(changes)).name.split("/")[1]
    assert found == name or (name.endswith("-") and found.startswith(name) and len(found) == len(name) + 8)


def encoding_of(changes, method="type2"):
    return build_config(apply_changes(small(method), read_dotted(changes)), {"vocab_size": 256}).layer_encoding(0)


def test_a_field_of_a_rows_encoding_is_changed_and_the_rest_stays():
    changed, rows = encoding_of({"model.encoding.base": "100"}), encoding_of({})
    assert (changed.base, rows.base) == (100.0, 10000.0)
    assert changed == replace(rows, base=100.0)
    assert encoding_of({"model.encoding.learned_angles": "false"}, "per").matrix == "permutation"


@pytest.mark.parametrize("whole", ["rope", "{name: rope}", "{basis: identity, matrix: orthogonal}"])
def test_a_whole_encoding_replaces_the_rows(whole):
    assert encoding_of({"model.encoding": whole}).basis == "identity"
    assert not encoding_of({"model.encoding": whole}).learned_angles


def test_every_change_has_a_name_of_its_own_and_the_same_one_each_time():
    ways = ["null", "{}", "spread", "[0.5, 0.25]", '"null"', "0.5"]
    names = [apply_changes(small(), read_dotted({"model.decay": text})).name for text in ways]
    assert len(set(names)) == len(ways)
    assert names == [apply_changes(small(), read_dotted({"model.decay": text})).name for text in ways]


def test_changes_of_changes_stay_apart_and_short():
    cell, names = small(), set()
    for number in range(12):
        cell = apply_changes(cell, read_dotted({"training.optimization.rate": f"{number + 1}e-4"}))
        names.add(cell.name)
    assert len(names) == 12
    assert max(map(len, names)) < 130


def test_what_a_cell_begins_with_is_told_apart_too():
    cell = smoke(glue("cola", "type2")).with_data({})
    assert cell.start is not None
    other = apply_changes(cell, read_dotted({"start.training.optimization.rate": "2e-3"}))
    assert other.start is not None
    assert other.start.name != cell.start.name
    assert other.name != cell.name
    own = apply_changes(cell, read_dotted({"training.optimization.rate": "2e-3"}))
    assert own.start == cell.start
    assert own.name != cell.name


def as_before(experiment: Experiment) -> dict:
    """What config.yaml had before ``label``, ``checkpoint``, ``resolved`` and the timeout were there."""
    values = to_dict(experiment)
    decided = dict(METHODS["spread"].fields) | {"absolute_positions": None}
    for name in ("label", "checkpoint", "resolved"):
        del values[name]
    values["training"].pop("timeout", None)
    return values | {"row": decided}


def test_a_configuration_of_an_earlier_version_is_the_same(monkeypatch):
    before, today = as_before(small("spread")), to_dict(small("spread"))
    assert describe_differences(upgrade(before), today) == {}
    other = to_dict(apply_changes(small("spread"), read_dotted({"model.decay": "null"})))
    assert list(describe_differences(upgrade(before), other)) == ["label", "model.decay", "resolved.decay"]
    defined = METHODS["spread"]
    monkeypatch.setitem(METHODS, "spread", replace(defined, fields=defined.fields | {"decay": None}))
    assert list(describe_differences(upgrade(before), to_dict(small("spread")))) == ["resolved.decay"]
    of_format_2 = today | {"resolved": {name: v for name, v in today["resolved"].items() if name != "convolution"}}
    of_format_2["resolved"]["format"] = 2
    assert describe_differences(upgrade(of_format_2), today) == {}


@pytest.mark.parametrize(
    "text", ["", "null", "3", "[]", "column: 3", "a: b", "start: {column: x}", "training: []", "data: {name: {}}"]
)
def test_a_configuration_of_another_shape_is_refused(text):
    values = parse_yaml(text)
    whole = to_dict(small()) | values if isinstance(values, dict) else {}
    with pytest.raises(LrpeError):
        from_dict(whole)
