"""Registries of named choices, to which users add their own."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

_Maker = TypeVar("_Maker")


class Registry(dict[str, _Maker]):
    """A dictionary from names to makers that remembers its built-in entries.

    Users add their own: ``BASES["wavelet"] = lambda config: Wavelet(config.head_dim)``. A model saved with such a name
    loads only where the name is registered again, even if it is an alias of a built-in maker.
    """

    every: ClassVar[list["Registry[Any]"]] = []

    def __init__(self, ours: Mapping[str, _Maker]):
        super().__init__(ours)
        self._ours = dict(ours)
        Registry.every.append(self)

    def is_foreign(self, name: str) -> bool:
        """Return whether a user registered this name or replaced its maker."""
        return name in self and self[name] is not self._ours.get(name)

    def ours(self) -> dict[str, _Maker]:
        """Return the built-in entries."""
        return dict(self._ours)
