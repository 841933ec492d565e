"""Classes made of a mixin of ours and a class of transformers, whose objects can be pickled and copied."""

from functools import cache
from typing import Any


class Derived:
    """The base of such mixins. Their classes have no place in a module, so pickle is told how to make them again."""

    prefix = ""  # of their names

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = vars(type(self)).get("_made_of")
        if parts is None:  # a class that somebody has derived from one of ours, and has to pickle himself
            return super().__reduce_ex__(protocol)
        return _revive, parts, self.__getstate__()


@cache
def derive(mixin: type[Derived], kind: type) -> Any:
    """The class of ``kind`` with the methods of ``mixin`` before its own.

    Without a prefix it has the name of ``kind``, since much of transformers goes by the names of classes: losses,
    pipelines, the architectures in config.json.
    """
    about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_made_of": (mixin, kind)}
    return type(f"{mixin.prefix}{kind.__name__}", (mixin, kind), about)


def _revive(mixin: type[Derived], kind: type) -> Any:
    made = derive(mixin, kind)
    return made.__new__(made)
