"""Ends a process when its parent has died."""

import os
import signal
import threading
import time
from multiprocessing import parent_process


def end_with_parent(grace: float = 0.0) -> None:
    """End this process when its parent ends, even if that is killed: a thread waits for it.

    Args:
        grace: seconds between SIGTERM, on which the process may save its work, and its end; 0 ends it at once.
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
