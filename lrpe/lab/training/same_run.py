"""Whether a folder belongs to a run: its whole configuration and its data, compared with those that it began with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrpe.errors import require
from lrpe.lab.training.run_files import read_run_info
from lrpe.serialization import read_yaml, to_json

# Fields that say how a run is computed, and not what it learns, by their section: these may change on the way.
_FREE = {
    "training": {"micro_batch", "workers", "compile", "checkpointing", "parallel", "wandb", "timeout"},
    "checkpoint": {"path"},
}
Config = dict[str, Any]


def check_config(folder: Path, config: Config, upgrade: Callable[[Config], Config] = lambda old: old) -> list[str]:
    """Return what changed since the run began, if that is only how it is computed; ``LrpeError`` for another run."""
    before = upgrade(read_yaml(folder / "config.yaml", dict[str, Any]))
    changed = describe_differences(before, to_json_values(config))
    refused = [text for key, text in changed.items() if not may_change(key)]
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    require(
        not refused,
        f"{str(folder)!r} is a run of another configuration ({'; '.join(refused[:5])}{more}). Name another folder, or "
        "give the configuration that it began with.",
    )
    return list(changed.values())


def check_data(folder: Path, data: dict[str, Any]) -> None:
    """Raise ``LrpeError`` if what the run learned from has changed. Facts that it did not note cannot tell."""
    before = flatten(read_run_info(folder).data)
    now = {key: value for key, value in flatten(data).items() if key in before}
    changed = describe_differences({key: before[key] for key in now}, now)
    require(
        not changed,
        f"The data of {str(folder)!r} are not those that it began with ({'; '.join(list(changed.values())[:3])}). Put "
        "them back to go on, or train on the new ones in another folder: --out DIR, and --from "
        f"{folder / 'last'} to begin with what it has learned.",
    )


def may_change(key: str) -> bool:
    """Whether a field may change: how it is computed, what it is called, and where the weights that it began with lie.

    Which weights those are is told by their hash.
    """
    *_, section, name = ["", *key.split(".")]
    return name in _FREE.get(section, ()) or (section in ("", "start") and name == "label")


def to_json_values(values: Config) -> Config:
    """Return values as they are when they come back from a file: lists for tuples."""
    return json.loads(to_json(values))


def describe_differences(before: Config, after: Config) -> dict[str, str]:
    """Return, for each field that differs, from what to what."""
    old, new = flatten(before), flatten(after)
    return {key: f"{key}: {_shown(old, key)} there, {_shown(new, key)} now" for key in find_differing_keys(old, new)}


def find_differing_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the keys of flat values that differ; no key, null and an empty value are three different things."""
    keys = sorted(key for key in old | new if (key in old) != (key in new) or old[key] != new[key])
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]  # {} that was filled


def _shown(values: dict[str, Any], key: str) -> str:
    return "absent" if key not in values else "null" if values[key] is None else str(values[key])


def flatten(values: Config, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}, "c": {}} -> {"a.b": 1, "c": {}}."""
    found = {}
    for key, value in values.items():
        deeper = isinstance(value, dict) and value
        found |= flatten(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return found
