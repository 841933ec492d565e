"""Plug-ins: files of Python that register encodings of one's own. A file is run only if the user names it."""

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lrpe.errors import LrpeError, require
from lrpe.registry import Registry

_PREFIX = "lrpe_plugin_"  # of module names, so that a plug-in never hides a module that others import
_Names = dict[int, dict[str, Any]]  # the entries of each registry by its id


@dataclass(frozen=True)
class Plugin:
    """A file that was run, and what it registered.

    Attributes:
        file: the path that the user gave.
        source: its text, as it was run.
        names: the names that it registered, in any registry.
    """

    file: str
    source: str = field(repr=False)
    names: frozenset[str] = frozenset()

    @property
    def module(self) -> str:
        return _PREFIX + Path(self.file).stem

    @property
    def file_name(self) -> str:
        return Path(self.file).name


_LOADED: dict[str, Plugin] = {}  # by module name, in the order in which they were run


def load_plugin(file: Path | str) -> Plugin:
    """Run a file of Python that registers encodings, as ``lrpe --plugin FILE`` does, once per process.

    A file that has changed since is run again.

    Raises:
        LrpeError: it cannot be read or run, or registers a name that lrpe or another plug-in has.
    """
    path = Path(file)
    require(path.suffix == ".py", f"A plug-in must be a file of Python, such as my_encoding.py; got {str(file)!r}.")
    require(path.stem.isidentifier(), f"The name of a plug-in must be a Python identifier; got {path.name!r}.")
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LrpeError(f"The plug-in {str(file)!r} cannot be read: {reason}.") from error
    return run_plugin(Plugin(str(file), source))


def run_plugin(plugin: Plugin) -> Plugin:
    """Run the source of a plug-in unless the same one was run; a worker gets the source that its parent ran."""
    known = _LOADED.get(plugin.module)
    if known is not None:
        if known.source == plugin.source:
            return known
        same = Path(known.file).resolve() == Path(plugin.file).resolve()
        require(same, f"Two plug-ins must have different names; got {known.file!r} and {plugin.file!r}.")
        _forget(known)
    before = _snapshot()
    try:
        _execute(plugin)
        names = frozenset(_names_since(before, plugin))
    except BaseException:
        _restore(before)
        sys.modules.pop(plugin.module, None)
        raise
    loaded = Plugin(plugin.file, plugin.source, names)
    _LOADED[plugin.module] = loaded
    return loaded


def loaded_plugins() -> list[Plugin]:
    return list(_LOADED.values())


def find_plugins(values: Any) -> list[Plugin]:
    """Return the loaded plug-ins that registered a name in nested values, such as those of a configuration."""
    names = set(_list_names(values))
    return [plugin for plugin in _LOADED.values() if plugin.names & names]


def _list_names(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield from (values, *values.split("*"))  # "basis*matrix" names two factors
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from _list_names(value)
    elif isinstance(values, Sequence):
        for value in values:
            yield from _list_names(value)


def _execute(plugin: Plugin) -> None:
    module = ModuleType(plugin.module)
    module.__file__ = plugin.file
    sys.modules[plugin.module] = module  # classes look up their module, for example to be pickled
    try:
        exec(compile(plugin.source, plugin.file, "exec"), module.__dict__)
    except Exception as error:
        raise LrpeError(f"The plug-in {plugin.file!r} cannot be run: {_locate(error, plugin.file)}") from error


def _locate(error: Exception, file: str) -> str:
    """Return the error with the plug-in's line that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"{'' if line is None else f'line {line}: '}{type(error).__name__}: {error}"


def _snapshot() -> _Names:
    return {id(registry): dict(registry) for registry in Registry.every}


def _entries(registry: Registry[Any], snapshot: _Names) -> dict[str, Any]:
    return snapshot.get(id(registry), registry.ours())  # a registry that the plug-in was the first to import


def _names_since(before: _Names, plugin: Plugin) -> Iterator[str]:
    """Yield the names that were registered since; a name that lrpe or another plug-in has is refused."""
    taken = {name: other.file for other in _LOADED.values() for name in other.names}
    for registry in Registry.every:
        entries = _entries(registry, before)
        for name in (name for name, maker in registry.items() if maker is not entries.get(name)):
            owner = "lrpe" if name in registry.ours() else taken.get(name)
            require(
                owner is None,
                f"The plug-in {plugin.file!r} must not replace {name!r}, a name of {owner}. Choose another name.",
            )
            yield name


def _restore(before: _Names) -> None:
    for registry in Registry.every:
        entries = _entries(registry, before)
        registry.clear()
        registry.update(entries)


def _forget(plugin: Plugin) -> None:
    """Remove what a plug-in registered."""
    del _LOADED[plugin.module]
    for registry in Registry.every:
        for name in plugin.names & set(registry) - set(registry.ours()):
            del registry[name]
