"""Which engine computes a sum: the first that does not decline, or the one that ``use`` asks for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import NamedTuple, Protocol

import torch

from lrpe.attention.description import OneToken, Unencoded
from lrpe.attention.engines.fla import FlaEngine
from lrpe.attention.engines.native import NativeEngine
from lrpe.attention.engines.torch_engine import TorchEngine
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.errors import LrpeError, unknown_name


class Engine(Protocol):
    """One way to compute every sum that it does not decline."""

    name: str

    def missing(self) -> str | None:
        """Return why the engine is not here at all, or None."""
        ...

    def declines(self, problem: Problem | Unencoded | OneToken) -> str | None:
        """Return why the engine does not take this problem, before anything is computed, or None."""
        ...

    def sums(self, problem: Problem | Unencoded | OneToken) -> Sums:
        """Return the solution, with gradients. That of an unencoded problem is divided by Δ."""
        ...


class Ran(NamedTuple):
    """The engine of a sum, and why the faster ones before it declined, by name."""

    engine: str
    declined: dict[str, str]


_TORCH = TorchEngine()
# The fastest first; native runs on a CPU, fla on a GPU, and torch takes everything.
_ENGINES: dict[str, Engine] = {"native": NativeEngine(), "fla": FlaEngine(), "torch": _TORCH}
_asked: ContextVar[str | None] = ContextVar("asked", default=None)
_ran: ContextVar[Ran | None] = ContextVar("ran", default=None)


def choose_engine(problem: Problem | Unencoded | OneToken) -> Engine:
    """Return the engine for a problem.

    Raises:
        LrpeError: ``use`` asks for an engine that declines it.
    """
    if torch.compiler.is_compiling():  # a context variable would break the graph
        return _TORCH
    asked, declined = _asked.get(), {}
    for name, engine in _ENGINES.items():
        if asked is not None and name != asked:
            continue
        reason = engine.declines(problem)
        if reason is None:
            _ran.set(Ran(name, declined))
            return engine
        declined[name] = reason
    raise LrpeError(f"engine {asked!r} does not take this sum: {declined[asked]}. Use lrpe.engines.use('torch').")


def allows(name: str) -> bool:
    """Return whether ``use`` does not ask for another engine than this."""
    return _asked.get() in (None, name)


@contextmanager
def use(name: str) -> Iterator[None]:
    """Compute every sum inside the block by this engine, "native", "fla" or "torch"; an error if it declines one."""
    if name not in _ENGINES:
        raise unknown_name("engine", name, _ENGINES)
    token = _asked.set(name)
    try:
        yield
    finally:
        _asked.reset(token)


def last() -> Ran | None:
    """Return which engine computed the last sum in this thread, and why others declined it; None before the first."""
    return _ran.get()


def status() -> dict[str, str]:
    """Return every engine by name with "ready", or why it is not here."""
    return {name: engine.missing() or "ready" for name, engine in _ENGINES.items()}


def engine_used(run: Callable[[], object]) -> Ran:
    """Run a call and return the engine of its last sum, and why faster ones declined it.

    A sum that no engine was asked for, because it has a shorter form in torch's operations, is torch's.
    """

    def traced() -> Ran | None:
        run()
        return last()

    # An empty context knows no earlier sum. A call that forces an engine has to do it inside ``run``.
    return Context().run(traced) or Ran("torch", {})
