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
    """Make the auto classes know our models; done on ``import lrpe.models``, and harmless when done again."""
    AutoConfig.register("lrpe", LrpeConfig, exist_ok=True)
    for auto, model in MODELS.items():
        auto.register(LrpeConfig, model, exist_ok=True)


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
    require((folder / "config.json").is_file(), f"A model's folder has a config.json; {str(folder)!r} has none.")
    values, _ = LrpeConfig.get_config_dict(folder)
    kind = values.get("model_type") if isinstance(values, dict) else None
    if kind != "lrpe":  # and code that a folder of another kind may name is not even asked for
        way_out = " Load it by lrpe.adapt.from_pretrained." if kind == "lrpe-replaced" else ""
        raise LrpeError(f"{str(folder)!r} holds a model of type {kind!r}, which is not one of ours.{way_out}")
    config = LrpeConfig.from_dict(values, **changes)
    name = (config.architectures or ["none"])[0]
    if name not in CLASSES:
        raise unknown_name("model class", name, CLASSES)
    files = ("model.safetensors", "model.safetensors.index.json")
    there = any((folder / file).is_file() for file in files)
    require(there, f"A model's weights are in {files[0]}, which {str(folder)!r} does not have.")
    _check_generation(folder / "generation_config.json")
    with quietly():
        model, found = CLASSES[name].from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True
        )
    others = sorted(str(key[0]) for key in found["mismatched_keys"])
    require(not others, f"The weights in {str(folder)!r} have other shapes than its config.json says: {others[:3]}.")
    return model


def _check_generation(file: Path) -> None:
    """Refuse settings of generation that transformers, which reads them with the weights, would break on."""
    if not file.exists():
        return
    values = read_json(file, dict[str, Any])
    try:
        GenerationConfig.from_dict(values).validate(strict=True)
    except (
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # as transformers finds it
        raise LrpeError(f"{str(file)!r} cannot be read: {error}. Remove it, or save the model again.") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' bar for every file and its report of weights that a head does not share, and without
    torch's warning that one process is not several."""
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
