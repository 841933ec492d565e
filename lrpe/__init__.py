"""Linearized relative positional encoding: the whole family, exact and verified."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrpe.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import the public names when the first of them is asked for.

    They need torch, which takes seconds to import; ``lrpe --help`` and a command with a typo in it need none of them.
    """
    if name == "__all__" or not name.startswith("__"):  # inspection of other special names imports nothing
        api = import_module("lrpe.api")
        globals().update({public: getattr(api, public) for public in api.__all__}, __all__=api.__all__)
        if name in globals():  # a public name, or a package of the core that was imported on the way
            return globals()[name]
    raise AttributeError(f"module 'lrpe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
