"""Requests to end a run: SIGTERM and Ctrl-C."""

import signal
from typing import Any

import torch.distributed as dist


class Stop:
    """Whether the run was asked to end, which it does after the update that is under way.

    A second Ctrl-C ends it at once, unless torchrun is there: it passes on to us what we have had from the terminal.
    A signal that this process ignores stays ignored: it is for the process that started it.
    """

    def __init__(self):
        self.asked = False

    def ask(self, number: int, *_: Any) -> None:
        if self.asked and number == signal.SIGINT and not dist.is_initialized():
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> "Stop":
        heard = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
        self.before = {number: signal.signal(number, self.ask) for number in heard}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
