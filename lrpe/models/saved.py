"""Saved models of ours: where a run or a folder has one, and the class that it is of."""

from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError, unknown_name
from lrpe.models import auto
from lrpe.models.configuration import LrpeConfig
from lrpe.models.pair_classification import LrpeForPairClassification
from lrpe.models.quiet import quietly

CLASSES = {model.__name__: model for model in (*auto.MODELS.values(), LrpeForPairClassification)}


def find_model(source: Path) -> Path:
    """The folder with the model: the one that is named, or the best or the last of a run."""
    for folder in (source, source / "best", source / "last"):
        if (folder / "config.json").is_file():
            return folder
    raise LrpeError(
        f"A model's folder has a config.json, and a run has one in best or last; {str(source)!r} has neither."
    )


def load_model(folder: Path, **changes: Any) -> Any:
    """The model of a folder, of the class that it was saved from; the changes are fields of its configuration."""
    values, _ = LrpeConfig.get_config_dict(folder)
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != "lrpe":  # and code that a folder of another kind may name is not even asked for
        raise LrpeError(f"{str(folder)!r} holds a model of type {kind!r}, which is not one of ours.")
    config = LrpeConfig.from_dict(values, **changes)
    name = (config.architectures or ["none"])[0]
    if name not in CLASSES:
        raise unknown_name("model class", name, CLASSES)
    with quietly():
        return CLASSES[name].from_pretrained(folder, config=config)
