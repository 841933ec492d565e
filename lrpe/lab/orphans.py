"""Processes that must not outlive the one that started them."""

import os
import signal
import threading
import time
from multiprocessing import parent_process


def end_with_parent(grace: float = 0.0) -> None:
    """End this process when its parent has ended, even if that was killed: a thread waits for it.

    Args:
        grace: seconds in which the process, asked by SIGTERM, may save what it is doing; none if 0.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_end, args=(parent, grace), daemon=True).start()


def _wait_and_end(parent, grace: float) -> None:
    parent.join()
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os._exit(1)
