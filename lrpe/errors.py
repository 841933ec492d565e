"""LrpeError, the one exception that users catch, and checks of arguments that raise it.

Importing torch takes seconds, and the command line refuses a typo without it, so torch is imported only where a size or
a tensor is checked.
"""

import difflib
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_MODELS = ("transformers", "safetensors")
_DATA = ("numpy", "scipy", "sklearn", "tokenizers", "filelock", "tqdm", "PIL")
_NEEDED = {  # required modules, by the extra of pyproject.toml that installs them
    "cli": ("jsonargparse", "docstring_parser"),
    "models": _MODELS,
    "data": _DATA,
    "train": (*_MODELS, *_DATA),
    "hub": ("datasets",),
    "report": ("vl_convert",),
}
_LARGEST = 2**31 - 1  # a size beyond int32 is a mistake, not a tensor


class LrpeError(ValueError):
    """Invalid input. The message gives the law, the values that break it and the way out."""


class StoppedError(Exception):
    """A run was asked to stop and has saved a checkpoint. The same command resumes it."""


PLUGIN_HINT = (  # the way out where users register names of their own
    "If a plug-in registers it, pass --plugin FILE, or call lrpe.plugins.load_plugin(FILE); a run keeps a copy in its "
    "folder plugins. "
)


def unknown_name(kind: str, name: object, known: Iterable[str], way_out: str = "") -> LrpeError:
    """Return an LrpeError for an unknown name, suggesting the closest known ones, then ``way_out``."""
    names, name = sorted({*known}), name if len(str(name)) <= 80 else f"{str(name)[:77]}..."
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    return LrpeError(f"There is no {kind} named {name!r}. {hint}{way_out}Known: {', '.join(names)}.")


def show(value: object) -> str:
    """Return ``repr(value)`` of at most 80 characters: a file or a user may give anything."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of more than 40 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def require_extras(what: str, *extras: str) -> None:
    """Raise unless the packages of these extras are installed.

    Args:
        what: what needs them, as the subject of a sentence: "lrpe.models".
        extras: extras of lrpe, such as "models".

    Raises:
        LrpeError: a module is missing; one sentence names all of them and the command that installs them.
    """
    lacking = {extra: [name for name in _NEEDED[extra] if _is_missing(name)] for extra in extras}
    modules = sorted({name for names in lacking.values() for name in names})
    if modules:
        chosen = ",".join(extra for extra, names in lacking.items() if names)
        raise LrpeError(
            f"{what} needs {', '.join(modules)}, which {'is' if len(modules) == 1 else 'are'} not installed: "
            f"pip install 'lrpe[{chosen}]', or in a checkout of lrpe pip install '.[{chosen}]'."
        )


def _is_missing(module: str) -> bool:
    return sys.modules[module] is None if module in sys.modules else find_spec(module) is None


def require(holds: bool, message: str | Callable[[], str]) -> None:
    """Raise ``LrpeError(message)`` unless the law holds.

    Pass a message that contains input sizes as a function. It is formatted only when needed, and a compiler that traces
    the check does not specialise on the sizes.
    """
    if not holds:
        raise LrpeError(message if isinstance(message, str) else message())


def check_count(name: str, value: Any, least: int = 1, most: int = _LARGEST) -> None:
    """Raise unless the value is an integer, or a compiler's symbolic integer, within these bounds."""
    import torch

    whole = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    require(
        whole and least <= value <= most,
        lambda: f"{name} must be a whole number from {least} to {most:,}; got {name}={show(value)}.",
    )


def check_rate(name: str, value: Any) -> None:
    """Raise unless the value is a rate 0 ≤ p < 1, such as dropout's."""
    require(
        is_number(value) and 0 <= value < 1,
        lambda: f"{name} must be a rate p with 0 ≤ p < 1; got {name}={show(value)}.",
    )


def check_tensor(name: str, value: Any, like: "Tensor | None" = None) -> None:
    """Raise unless the value is a dense tensor, on the device of ``like`` if given."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise LrpeError(f"{name} must be a tensor; got {type(value).__name__}.")
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        raise LrpeError(f"{name} must be a dense tensor; got {_kind(value)}.")
    if like is not None and value.device != like.device:
        raise LrpeError(f"{name} must be on the device of x, {like.device}; got {value.device}.")


def check_real(name: str, value: Any, like: "Tensor | None" = None) -> None:
    """Raise unless the value is a tensor of real floating-point numbers."""
    check_tensor(name, value, like)
    if not value.is_floating_point():
        raise LrpeError(f"{name} must hold real floating-point numbers; got {value.dtype}.")


def is_number(value: Any) -> bool:
    """Return whether the value is a real number, NaN and infinities included; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integral(tensor: "Tensor") -> bool:
    """Return whether the tensor holds integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def _kind(tensor: "Tensor") -> str:
    return "a nested tensor" if tensor.is_nested else f"{tensor.dtype} in the layout {tensor.layout}"
