"""Linearized relative positional encoding: the whole family, exact and verified."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lrpe.moved import find_moved_name, install

if TYPE_CHECKING:
    from lrpe.api import *  # noqa: F403

install()


def __getattr__(name: str) -> Any:
    """Import the public names when one of them is first used.

    They need torch, which takes seconds to import; ``lrpe --help`` and a command with a typo need none of them.
    """
    if name == "__all__" or not name.startswith("__"):  # inspecting other special names imports nothing
        api = import_module("lrpe.api")
        globals().update({public: getattr(api, public) for public in api.__all__}, __all__=api.__all__)
        if name in globals():  # a public name, or a package that was imported on the way
            return globals()[name]
    return find_moved_name(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
