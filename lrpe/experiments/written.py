"""Experiments as they are written in files and on the command line: nested dictionaries, and back, checked."""

import json
import re
import types
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from lrpe.errors import LrpeError, unknown_name
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.methods import row

Same = TypeVar("Same")
DECIDED = "row"  # the fields of LrpeConfig that method and setting decide, beside those of the experiment


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """Plain dictionaries and lists, as config.yaml has them, and what the method is today: one that is defined anew is
    another run."""
    decided = row(experiment.method, experiment.setting, experiment.architecture | experiment.model)
    return json.loads(json.dumps(asdict(experiment) | {DECIDED: decided}))


def from_dict(values: dict[str, Any]) -> Experiment:
    return conform({key: value for key, value in values.items() if key != DECIDED}, Experiment, "")


def changed(experiment: Experiment, *changes: dict[str, Any]) -> Experiment:
    """The experiment with nested changes, such as {"training": {"optimization": {"rate": 1e-3}}}."""
    values = to_dict(experiment)
    for change in changes:
        values = merged(values, change)
    return from_dict(values)


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = dict(values)
    for key, change in changes.items():
        deeper = isinstance(change, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], change) if deeper else change
    return found


def nested(key: str, text: str) -> dict[str, Any]:
    """``training.optimization.rate`` and ``1e-3`` as nested dictionaries; ``experiment.scored`` is ``scored``."""
    value: Any = read_value(text)
    for part in reversed(key.removeprefix("experiment.").split(".")):
        value = {part: value}
    return value


def read_value(text: str) -> Any:
    """A number, a word, a list ...: YAML, and 1e-3 is a number."""
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", text):
        return float(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LrpeError(f"A value is written as in YAML; got {text!r}: {error}.") from error


def conform(value: Any, hint: Any, key: str) -> Any:
    """The value as what the field is declared to be; ``LrpeError`` if it is not."""
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return build(hint, value, key)
    if get_origin(hint) in (Union, types.UnionType):
        return conform_to_one(value, get_args(hint), key)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown_name(key, str(value), [str(choice) for choice in get_args(hint)])
        return value
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        inner, *others = get_args(hint)
        if Ellipsis not in others and len(value) != 1 + len(others):
            raise LrpeError(f"{key} has {1 + len(others)} values; got {list(value)}.")
        return tuple(conform(each, inner, key) for each in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or is_of(value, get_origin(hint) or hint):
        return value
    raise LrpeError(f"{key} is {getattr(hint, '__name__', hint)}; got {value!r}.")


def is_of(value: Any, kind: Any) -> bool:
    """As isinstance has it, but yes and no are not numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def conform_to_one(value: Any, hints: tuple[Any, ...], key: str) -> Any:
    if value is None and types.NoneType in hints:
        return None
    (hint,) = (hint for hint in hints if hint is not types.NoneType)
    return conform(value, hint, key)


def build(kind: type[Same], values: dict[str, Any], key: str) -> Same:
    hints, prefix = get_type_hints(kind), f"{key}." if key else ""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown_name("key", f"{prefix}{name}", [f"{prefix}{other}" for other in known])
    try:
        return kind(**{name: conform(value, hints[name], f"{prefix}{name}") for name, value in values.items()})
    except TypeError as error:
        raise LrpeError(f"A configuration lacks something: {error}.") from error
