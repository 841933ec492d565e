"""Names for the choices of a configuration: ours, and those that others add."""

from collections.abc import Mapping
from typing import TypeVar

_Maker = TypeVar("_Maker")


class Registry(dict[str, _Maker]):
    """A dictionary from names to makers that remembers which makers it began with.

    Others add makers of their own: ``BASES["wavelet"] = lambda config: Wavelet(config.head_dim)``. A name that they
    added is unknown to our code elsewhere, even if it is one more name for a maker of ours.
    """

    def __init__(self, ours: Mapping[str, _Maker]):
        super().__init__(ours)
        self._ours = dict(ours)

    def is_foreign(self, name: str) -> bool:
        """Whether somebody else registered this name, or gave it another maker."""
        return name in self and self[name] is not self._ours.get(name)
