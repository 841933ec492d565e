"""Which engine computes a call: run it and ask ``lrpe.engines.last()``."""

from collections.abc import Callable
from contextvars import Context

from lrpe.attention.engines.choice import Ran, last


def engine_used(run: Callable[[], object]) -> Ran:
    """Run a call and return the engine of its last sum, and why faster ones declined it.

    A sum that no engine was asked for, because it has a shorter form in torch's operations, is torch's.
    """

    def traced() -> Ran | None:
        run()
        return last()

    # An empty context knows no earlier sum. A call that forces an engine has to do it inside ``run``.
    return Context().run(traced) or Ran("torch", {})
