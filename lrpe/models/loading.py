"""Loading, beyond what transformers does: a damaged file is named, and a changed configuration holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from lrpe.errors import LrpeError
from lrpe.models.block import Block, defined_tensors
from lrpe.models.configuration import LrpeConfig

OF_THE_HUB = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
DEFINING = {"encoding", "decay", "feature_map", "seed", "max_position_embeddings", "position_layout", "attention"}


@contextmanager
def naming_damage(where: Any) -> Iterator[None]:
    """safetensors says what is wrong with a file; this adds which file it is."""
    try:
        yield
    except SafetensorError as error:
        raise LrpeError(
            f"Weights cannot be read from {damaged(where)}: {error}. Save or download them again."
        ) from error


def damaged(where: Any) -> Path | str:
    """The first file of a folder that does not open."""
    for path in sorted(Path(where).rglob("*.safetensors")) if where is not None else ():
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError:
            return path
    return str(where)


def check_found(model: nn.Module, info: Any, where: Any) -> None:
    """A file that has not one weight of the blocks is of another model, whatever lies beside it."""
    missing = info["missing_keys"]
    blocks = [name for name, _ in model.named_parameters() if ".layers." in f".{name}"]
    if blocks and all(name in missing for name in blocks):
        raise LrpeError(f"The weights in {where} are of another model: not one of ours is among them.")


def stored_config(where: Any, options: dict[str, Any]) -> LrpeConfig | None:
    """The configuration that lies beside the weights, with nothing changed."""
    if where is None or options.get("gguf_file") is not None:
        return None
    values, _ = LrpeConfig.get_config_dict(where, **{name: options[name] for name in OF_THE_HUB if name in options})
    return LrpeConfig.from_dict(values) if values.get("model_type") == "lrpe" else None


@torch.no_grad()
def follow(model: nn.Module, config: LrpeConfig, stored: LrpeConfig) -> None:
    """Angles, bases, permutations and decays as ``config`` has them, where it was changed from the ``stored`` one.

    A file has tensors of these names too, so it would quietly win. What both configurations fix alike stays as the file
    has it, and so does what both of them learn.
    """
    if all(getattr(config, name) == getattr(stored, name) for name in DEFINING):
        return
    for block in (module for module in model.modules() if isinstance(module, Block)):
        own = block.attention.state_dict(keep_vars=True)
        before = defined_tensors(stored, block.layer) if block.layer < stored.num_hidden_layers else {}
        for name, value in defined_tensors(config, block.layer).items():
            old = before.get(name)
            learned = isinstance(old, nn.Parameter) and isinstance(value, nn.Parameter)
            fixed = old is not None and not isinstance(old, nn.Parameter) and torch.equal(old, value)
            if not learned and not fixed and own[name].device.type != "meta":
                own[name].copy_(value)
