"""Find and load saved models: transformers' auto classes, folders and runs."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    GenerationConfig,
)
from transformers.utils import logging

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.classification import (
    LrpeForImageClassification,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    LrpeForTokenClassification,
)
from lrpe.models.configuration import LrpeConfig
from lrpe.models.language_models import LrpeForCausalLM, LrpeForMaskedLM
from lrpe.models.trunk import LrpeModel
from lrpe.serialization import read_json

MODELS = {
    AutoModel: LrpeModel,
    AutoModelForCausalLM: LrpeForCausalLM,
    AutoModelForMaskedLM: LrpeForMaskedLM,
    AutoModelForSequenceClassification: LrpeForSequenceClassification,
    AutoModelForTokenClassification: LrpeForTokenClassification,
    AutoModelForImageClassification: LrpeForImageClassification,
}
CLASSES = {model.__name__: model for model in (*MODELS.values(), LrpeForPairClassification)}


def register() -> None:
    """Register our models with the auto classes; ``import lrpe.models`` does it, and repeating it is harmless."""
    AutoConfig.register("lrpe", LrpeConfig, exist_ok=True)
    for auto, model in MODELS.items():
        auto.register(LrpeConfig, model, exist_ok=True)


def find_model(source: Path) -> Path:
    """Return the folder of the model: ``source`` itself, or the best or last of a run."""
    for folder in (source, source / "best", source / "last"):
        if (folder / "config.json").is_file():
            return folder
    raise LrpeError(
        f"{str(source)!r} must have a config.json, or be a run with one in best or last; it has neither. Pass the "
        "folder that save_pretrained or lrpe train wrote."
    )


def load_model(folder: Path, **changes: Any) -> Any:
    """Load the model of a folder, as the class that was saved; ``changes`` are fields of its configuration."""
    require(
        (folder / "config.json").is_file(),
        f"{str(folder)!r} must have a config.json; it has none. Pass the folder that save_pretrained wrote.",
    )
    values, _ = LrpeConfig.get_config_dict(folder)
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != "lrpe":  # refused before transformers would look at code that the folder may name
        way_out = " Load it by lrpe.adapt.from_pretrained." if kind == "lrpe-replaced" else ""
        raise LrpeError(
            f"model_type must be 'lrpe'; {str(folder)!r} holds a model of type {kind!r}, not one of ours.{way_out}"
        )
    config = LrpeConfig.from_dict(values, **changes)
    name = (config.architectures or ["none"])[0]
    if name not in CLASSES:
        raise unknown_name("model class", name, CLASSES)
    files = ("model.safetensors", "model.safetensors.index.json")
    there = any((folder / file).is_file() for file in files)
    require(there, f"{str(folder)!r} must have a {files[0]}; it has none. Save or download the model again.")
    _check_generation(folder / "generation_config.json")
    with quietly():
        model, found = CLASSES[name].from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True
        )
    others = sorted(str(key[0]) for key in found["mismatched_keys"])
    require(
        not others,
        f"The weights in {str(folder)!r} have other shapes than its config.json says: {others[:3]}. Save or download "
        "the model again.",
    )
    return model


def _check_generation(file: Path) -> None:
    """Refuse a generation_config.json that transformers, which reads it with the weights, would fail on."""
    if not file.exists():
        return
    values = read_json(file, dict[str, Any])
    try:
        GenerationConfig.from_dict(values).validate(strict=True)
    except (
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # what transformers raises for bad values
        raise LrpeError(f"{str(file)!r} cannot be read: {error}. Remove it, or save the model again.") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Silence transformers' progress bars and loading reports, and torch's single-process warning."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
