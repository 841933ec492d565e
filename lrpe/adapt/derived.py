"""Subclasses of transformers classes, made at run time from a mixin, whose objects can be pickled and copied."""

from functools import cache
from typing import Any


class Derived:
    """Base class of the mixins. No module holds the subclass, so pickle stores its two parts and derives it again."""

    prefix = ""  # of the subclass's name

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = vars(type(self)).get("_made_of")
        if parts is None:  # a user's subclass, which is pickled in the usual way
            return super().__reduce_ex__(protocol)
        return _revive, parts, self.__getstate__()


@cache
def derive(mixin: type[Derived], kind: type) -> Any:
    """Return a subclass of ``kind`` in which the methods of ``mixin`` come first.

    Without a prefix it has the name of ``kind``: transformers chooses losses, pipelines and the architectures of
    config.json by class name.
    """
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_made_of": (mixin, kind)}
    return type(f"{mixin.prefix}{kind.__name__}", (mixin, kind), about)


def _revive(mixin: type[Derived], kind: type) -> Any:
    made = derive(mixin, kind)
    return made.__new__(made)
