"""Read saved weights: name damaged files, keep float64, check for missing weights, apply changed fields."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from lrpe.encodings.angles import places_of_alpha, start_from_alpha
from lrpe.errors import LrpeError
from lrpe.models.block import Block, defined_tensors
from lrpe.models.configuration import LrpeConfig
from lrpe.precision import Precise

OF_THE_HUB = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
_DEFINING_FIELDS = {
    "encoding",
    "decay",
    "feature_map",
    "seed",
    "max_position_embeddings",
    "position_layout",
    "attention",
}


@contextmanager
def naming_damage(where: Any) -> Iterator[None]:
    """Add the file's name to safetensors' error, which says only what is wrong with it."""
    try:
        yield
    except SafetensorError as error:
        raise LrpeError(
            f"Weights cannot be read from {_find_damaged_file(where)}: {error}. Save or download them again."
        ) from error


def _find_damaged_file(where: Any) -> Path | str:
    """Return the first file of a folder that does not open."""
    for path in sorted(Path(where).rglob("*.safetensors")) if where is not None else ():
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError:
            return path
    return str(where)


class KeepsPrecision:
    """A mixin for transformers models with our encodings, which loads angles exactly, those of earlier versions too."""

    @staticmethod
    def _load_pretrained_model(
        model: PreTrainedModel, state_dict: Any, checkpoint_files: Any, load_config: Any, *rest: Any, **more: Any
    ) -> Any:
        """Read the weights as transformers does, after preparing float64 tensors and angles of earlier versions."""
        if state_dict is None and checkpoint_files is not None:
            _keep_stored_precision(model, checkpoint_files)
            state_dict = _read_with_old_angles(model, checkpoint_files)
        return PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config, *rest, **more)


def _keep_stored_precision(model: PreTrainedModel, files: Iterable[str]) -> None:
    """Make tensors of encodings float64 if they are float64 in the files, before the files are read.

    transformers casts what it reads to the dtype of the model's own tensor, so a file's float64 angles would be rounded
    to the float32 that constructors make.
    """
    stored = {_trunk_name(model, name) for file in files for name in _float64_names(file)}
    for place, module in model.named_modules():
        if isinstance(module, Precise):
            for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                if _trunk_name(model, f"{place}.{name}") in stored:
                    tensor.data = tensor.data.double()


def _float64_names(file: str) -> list[str]:
    """Return the names of the float64 tensors in a safetensors file, from its header."""
    with safe_open(file, "pt") as tensors:
        return [name for name in tensors.keys() if tensors.get_slice(name).get_dtype() == "F64"]  # noqa: SIM118


def _read_with_old_angles(model: PreTrainedModel, files: Iterable[str]) -> dict[str, Tensor] | None:
    """Return the tensors of files in which α itself was learned, under their present names; None for other files.

    transformers can rename what it reads, but would then save under the old name again, and adds no tensor.
    """
    stored = [name for file in files for name in _names(file)]
    places = places_of_alpha(stored, model.state_dict(), f"{model.base_model_prefix}.")
    if not places:
        return None
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    for place in places:
        start_from_alpha(tensors, place)
    return tensors


def _names(file: str) -> list[str]:
    with safe_open(file, "pt") as tensors:
        return list(tensors.keys())


def _trunk_name(model: PreTrainedModel, name: str) -> str:
    """Return the name without the trunk's prefix, which a file of the trunk alone does not have."""
    return name.removeprefix(f"{model.base_model_prefix}.")


def check_found(model: PreTrainedModel, info: Any, where: Any, stored: LrpeConfig) -> None:
    """Refuse a file that lacks weights which a model of the ``stored`` configuration has.

    Weights of a new head may be missing, and so may weights that a configuration changed on loading adds.
    """
    if not info["missing_keys"]:
        return
    expected = _saved_names(model, stored)
    lost = sorted(expected & set(info["missing_keys"]))
    blocks = {name for name in expected if ".layers." in f".{name}"}
    if blocks <= set(lost):
        raise LrpeError(
            f"The weights in {where} are of another model: none of the expected ones is there. Pass another folder."
        )
    if lost:
        shown = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        raise LrpeError(
            f"{where} lacks {len(lost)} of the weights that its config.json promises: {shown}. Save or download them "
            "again."
        )


def _saved_names(model: PreTrainedModel, stored: LrpeConfig) -> set[str]:
    """Return the weights that a file must have: all if it was saved from the same class, else the trunk's."""
    trunk = model.base_model
    same = type(model).__name__ in (stored.architectures or [])
    with torch.device("meta"):
        names = (type(model) if same else type(trunk))(stored).state_dict()
    prefix = "" if same or trunk is model else f"{model.base_model_prefix}."
    return {f"{prefix}{name}" for name in names}


def stored_config(where: Any, options: dict[str, Any]) -> LrpeConfig | None:
    """Return the configuration stored beside the weights, unchanged."""
    if where is None or options.get("gguf_file") is not None:
        return None
    values, _ = LrpeConfig.get_config_dict(where, **{name: options[name] for name in OF_THE_HUB if name in options})
    return LrpeConfig.from_dict(values) if values.get("model_type") == "lrpe" else None


@torch.no_grad()
def follow(model: nn.Module, config: LrpeConfig, stored: LrpeConfig) -> None:
    """Set angles, bases, permutations and decays to those of ``config`` where it differs from ``stored``.

    The file has tensors of these names too, which would silently take precedence. Tensors that both configurations
    fix alike, or that both learn, stay as the file has them.
    """
    if all(getattr(config, name) == getattr(stored, name) for name in _DEFINING_FIELDS):
        return
    for block in (module for module in model.modules() if isinstance(module, Block)):
        own = block.attention.state_dict(keep_vars=True)
        before = defined_tensors(stored, block.layer) if block.layer < stored.num_hidden_layers else {}
        after = defined_tensors(config, block.layer)
        for name, value in after.items():
            old = before.get(name)
            learned = _is_learned(name, before) and _is_learned(name, after)
            fixed = old is not None and not isinstance(old, nn.Parameter) and torch.equal(old, value)
            if not learned and not fixed and own[name].device.type != "meta":
                own[name].copy_(value)


def _is_learned(name: str, tensors: dict[str, Tensor]) -> bool:
    """Return whether a tensor is learned, or the start of learned angles, without which they mean nothing."""
    return isinstance(tensors.get(name), nn.Parameter) or f"{name.removesuffix('start')}log_alpha" in tensors
