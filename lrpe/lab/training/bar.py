"""Progress of a run: a live bar on a terminal, and a line now and then elsewhere."""

import sys
import time
from typing import Any

from tqdm import tqdm

SECONDS = 10.0  # between two lines where there is no terminal; a bar is drawn anew five times a second


class Bar:
    """Loss, metric, tokens a second and time left; the last two are means since this process took the run up."""

    def __init__(self, title: str, total: int, done: int, shown: bool):
        self.title, self.total, self.begun, self.shown = title, total, done, shown
        live = shown and sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=done, desc=title, unit="update", dynamic_ncols=True) if live else None
        self.pause = 0.2 if live else SECONDS
        self.started = self.last = time.monotonic()
        self.handled = 0.0

    def show(self, update: int, handled: float, unit: str, figures: dict[str, float]) -> None:
        """After an update of so many tokens, or whatever the unit is."""
        now = time.monotonic()
        self.handled += handled
        if self.shown and (now - self.last >= self.pause or update == self.total):
            self.last = now
            self.draw(update, unit, figures, now - self.started)

    def draw(self, update: int, unit: str, figures: dict[str, float], seconds: float) -> None:
        text = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
        text += f", {tqdm.format_sizeof(self.handled / max(seconds, 1e-9))} {unit}/s"
        if self.bar is not None:
            self.bar.n = update
            self.bar.set_postfix_str(text)
            return
        left = tqdm.format_interval(seconds * (self.total - update) / (update - self.begun))
        print(f"{self.title}: update {update} of {self.total}, {text}, {left} left", file=sys.stderr, flush=True)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
