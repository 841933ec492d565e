"""Pathfinder (Linsley et al., 2018) on 32 × 32 pixels: are two dots the ends of one dashed path?

Two dashed, curved paths of equal length start near each other among shorter ones that distract. The picture is drawn
before its label is known: the label only decides at which of two free ends, equally far from the first dot, the second
dot stands. So neither the distance of the dots nor the amount of ink can tell it.

Points of the plane are complex numbers, in pixels.
"""

from dataclasses import dataclass

import numpy as np

from lrpe.errors import LrpeError
from lrpe.lab.data.arena.pathfinder_paths import DASH, FREE, MARGIN, SIDE, direction, grow, marked

STARTS_APART = 7.0  # the two paths
DISTRACTING_DASHES = 20  # in all
THICKNESS, DOT_RADIUS = 0.5, 1.5
EQUALLY_FAR, DOTS_APART = 1.5, 5.0
RETRIES = 8  # for the second path, and for each one that distracts
ATTEMPTS = 10_000  # for a picture; some tens are enough

PIXELS = (np.arange(SIDE)[None, :] + 1j * np.arange(SIDE)[:, None]).astype(np.complex64)


@dataclass(frozen=True)
class Difficulty:
    """How long the two paths are; those that distract have a third of their dashes."""

    dashes: int

    @property
    def distractor_dashes(self) -> int:
        return self.dashes // 3

    @property
    def distractors(self) -> int:
        return DISTRACTING_DASHES // self.distractor_dashes


DIFFICULTIES = {"easy": Difficulty(6), "intermediate": Difficulty(9), "hard": Difficulty(14)}


@dataclass(frozen=True)
class Scene:
    """What is in a picture: dashes as their points (n, 3), and for each label the second dot beside the first."""

    dashes: np.ndarray
    first_dot: complex
    second_dots: tuple[complex, complex]  # of another path, of the same path

    def picture(self, label: int) -> np.ndarray:
        """Its pixels, uint8 (32, 32)."""
        starts = self.dashes[:, :1, None].astype(np.complex64)  # (n, 1, 1)
        headings = (self.dashes[:, -1:, None].astype(np.complex64) - starts) / DASH
        along = ((PIXELS - starts) * headings.conj()).real.clip(0, DASH)
        away = np.abs(PIXELS - starts - along * headings).min(0)
        dots = np.minimum(np.abs(PIXELS - self.first_dot), np.abs(PIXELS - self.second_dots[label]))
        ink = np.maximum((0.5 + THICKNESS / 2 - away).clip(0, 1), (0.5 + DOT_RADIUS - dots).clip(0, 1))
        return np.rint(255 * ink).astype(np.uint8)


def draw(seed: int, index: int, difficulty: Difficulty) -> tuple[int, np.ndarray]:
    """Picture number ``index`` of a seed, with its label: 1 for the dots of one path, in every second picture."""
    label = index % 2
    return label, scene(np.random.default_rng((seed, index)), difficulty).picture(label)


def scene(rng: np.random.Generator, difficulty: Difficulty) -> Scene:
    """Two paths with ends equally far apart, tried until there are, and those that distract."""
    for _ in range(ATTEMPTS):
        paths = two_paths(rng, difficulty.dashes)
        dots = None if paths is None else choose_dots(rng, *paths)
        if paths is not None and dots is not None:
            return Scene(add_distractors(rng, np.concatenate(paths), difficulty), *dots)
    raise LrpeError(f"{difficulty} does not fit into {SIDE} × {SIDE} pixels: take fewer dashes.")


def two_paths(rng: np.random.Generator, dashes: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Two paths that start STARTS_APART, or None where they found no room."""
    start = complex(*rng.uniform(SIDE / 4, 3 * SIDE / 4, 2))
    first = grow(rng, FREE, start, dashes)
    if first is None:
        return None
    ground = marked(FREE, first)
    tries = (grow(rng, ground, start + STARTS_APART * direction(rng), dashes) for _ in range(RETRIES))
    second = next((path for path in tries if path is not None), None)
    return None if second is None else (first, second)


def choose_dots(
    rng: np.random.Generator, one: np.ndarray, other: np.ndarray
) -> tuple[complex, tuple[complex, complex]] | None:
    """An end of a path, and two ends equally far from it: one of the other path, one of the same."""
    for which in rng.permutation(4):
        same, another = (one, other) if which < 2 else (other, one)
        ends = same[0, 0], same[-1, -1]
        dot, connected = ends if which % 2 else ends[::-1]
        apart = another[-1, -1] if which % 2 else another[0, 0]
        far, other_far = abs(dot - connected), abs(dot - apart)
        if abs(far - other_far) < EQUALLY_FAR and min(far, other_far) > DOTS_APART:
            return dot, (apart, connected)
    return None


def add_distractors(rng: np.random.Generator, dashes: np.ndarray, difficulty: Difficulty) -> np.ndarray:
    """As many short paths as find room."""
    ground = marked(FREE, dashes)
    for _ in range(difficulty.distractors):
        starts = rng.uniform(MARGIN, SIDE - 1 - MARGIN, (RETRIES, 2))
        tries = (grow(rng, ground, complex(*start), difficulty.distractor_dashes) for start in starts)
        path = next((path for path in tries if path is not None), None)
        if path is not None:
            dashes, ground = np.concatenate([dashes, path]), marked(ground, path)
    return dashes
