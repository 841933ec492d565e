"""Check that a run resumes with the configuration and data that it started with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrpe.errors import require
from lrpe.lab.training.run_files import read_run_info
from lrpe.serialization import read_yaml, to_json

# Fields, by section, that affect how a run is computed but not what it learns; a resumed run may change them.
_FREE = {
    "training": {"micro_batch", "workers", "compile", "checkpointing", "parallel", "wandb", "timeout"},
    "checkpoint": {"path"},
}
Config = dict[str, Any]


def check_config(folder: Path, config: Config, upgrade: Callable[[Config], Config] = lambda old: old) -> list[str]:
    """Return the permitted changes since the run started; ``LrpeError`` if anything else changed."""
    before = upgrade(read_yaml(folder / "config.yaml", dict[str, Any]))
    changed = describe_differences(before, to_json_values(config))
    refused = [text for key, text in changed.items() if not may_change(key)]
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    require(
        not refused,
        f"{str(folder)!r} is a run of another configuration ({'; '.join(refused[:5])}{more}). Use another folder, or "
        "the configuration that the run started with.",
    )
    return list(changed.values())


def check_data(folder: Path, data: dict[str, Any]) -> None:
    """Raise ``LrpeError`` if the data have changed. Facts that the run did not record are not compared."""
    before = flatten(read_run_info(folder).data)
    now = {key: value for key, value in flatten(data).items() if key in before}
    changed = describe_differences({key: before[key] for key in now}, now)
    require(
        not changed,
        f"The data of {str(folder)!r} differ from the data it started with ({'; '.join(list(changed.values())[:3])}). "
        "Restore them to resume, or train on the new data in another folder: --out DIR, with --from "
        f"{folder / 'last'} to start from its weights.",
    )


def may_change(key: str) -> bool:
    """Return whether a resumed run may change a field: how it is computed, its label, the path of initial weights.

    The identity of those weights is fixed by their hash.
    """
    *_, section, name = ["", *key.split(".")]
    return name in _FREE.get(section, ()) or (section in ("", "start") and name == "label")


def to_json_values(values: Config) -> Config:
    """Return values as a file gives them back: tuples become lists."""
    return json.loads(to_json(values))


def describe_differences(before: Config, after: Config) -> dict[str, str]:
    """Return a description of the change of each field that differs."""
    old, new = flatten(before), flatten(after)
    return {key: f"{key}: {_shown(old, key)} there, {_shown(new, key)} now" for key in find_differing_keys(old, new)}


def find_differing_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the keys whose values differ; an absent key, null and an empty value all differ from each other."""
    keys = sorted(key for key in old | new if (key in old) != (key in new) or old[key] != new[key])
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]  # an empty {} gained keys


def _shown(values: dict[str, Any], key: str) -> str:
    return "absent" if key not in values else "null" if values[key] is None else str(values[key])


def flatten(values: Config, prefix: str = "") -> dict[str, Any]:
    """Return {"a.b": 1, "c": {}} for {"a": {"b": 1}, "c": {}}."""
    found = {}
    for key, value in values.items():
        deeper = isinstance(value, dict) and value
        found |= flatten(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return found
