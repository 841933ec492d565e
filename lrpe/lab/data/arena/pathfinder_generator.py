"""Pathfinder (Linsley et al., 2018) on 32 × 32 pixels: are two dots the ends of one dashed path?

Two dashed, curved paths of equal length start near each other among shorter distractors. The picture is drawn before
its label is chosen: the label only decides which of two free ends, equally far from the first dot, gets the second dot.
So neither the distance between the dots nor the amount of ink reveals it.

Points are complex numbers, in pixels. The "ground" is a fine grid of cells that are free or taken.
"""

from dataclasses import dataclass

import numpy as np

from lrpe.errors import LrpeError

SIDE = 32
DASH, GAP = 2.0, 1.5  # lengths along a path, which bends in the middle of a gap
CLEARANCE = 2.0  # between dashes that are not consecutive
_MARGIN = 1.5  # from the border
_TRIES = 16  # directions tried per dash
_SETBACKS, _STEPS_BACK = 6, 4  # how often a blocked path removes dashes, and how many

_TICKS = np.linspace(0.0, DASH, 3)  # the points of a dash whose clearance is checked
FINE, _PAD = 3, 4  # cells per pixel side, and pixels of ground beyond each border
_WIDTH = (SIDE + 2 * _PAD) * FINE
ANGLES = np.linspace(-np.pi / 2, np.pi / 2, 181)  # a path turns by δ with density 2/π · cos²(δ)
_SHARE_BELOW = 0.5 + ANGLES / np.pi + np.sin(2 * ANGLES) / (2 * np.pi)
_TURNS = np.exp(1j * np.interp((np.arange(4096) + 0.5) / 4096, _SHARE_BELOW, ANGLES))  # e^{iδ}, equally likely δ


def _grow(rng: np.random.Generator, ground: np.ndarray, start: complex, dashes: int) -> np.ndarray | None:
    """Return a path (dashes, 3) over free ground that keeps clear of itself, or None if it gets stuck."""
    path, grounds, setbacks = (
        [start + _draw_direction(rng) * _TICKS],
        [ground],
        0,
    )  # a dash takes ground only after the next one is placed
    if ground[_find_cells(path[0])].any():
        return None
    while len(path) < dashes and setbacks <= _SETBACKS:
        heading = (path[-1][-1] - path[-1][0]) / DASH
        headings = heading * _TURNS[(rng.random(_TRIES) * len(_TURNS)).astype(np.intp)]
        tries = path[-1][-1] + GAP / 2 * heading + headings[:, None] * (GAP / 2 + _TICKS)
        taken = grounds[-1][_find_cells(tries)].any(1)
        if not taken.all():
            grounds.append(_mark(grounds[-1], path[-1]))
            path.append(tries[taken.argmin()])
        else:
            kept, setbacks = max(1, len(path) - _STEPS_BACK), setbacks + 1
            path, grounds = path[:kept], grounds[:kept]
    return np.array(path) if len(path) == dashes else None


def _mark(ground: np.ndarray, dashes: np.ndarray) -> np.ndarray:
    """Return the ground with every cell nearer than CLEARANCE to the dashes taken."""
    marked = ground.copy()
    marked[_find_cells(dashes).reshape(-1, 1) + _NEAR] = True
    return marked


def _find_cells(points: np.ndarray) -> np.ndarray:
    """Return the indices of the cells that contain the points."""
    fine = (points + (1 + 1j) * _PAD) * FINE
    return fine.imag.astype(np.intp) * _WIDTH + fine.real.astype(np.intp)


def _make_free_ground() -> np.ndarray:
    """Return the flattened ground of an empty picture: cells outside the picture or in its margin are taken."""
    places = (np.arange(_WIDTH) + 0.5) / FINE - _PAD
    inside = (places >= _MARGIN) & (places <= SIDE - 1 - _MARGIN)
    return ~np.outer(inside, inside).reshape(-1)


def _find_near_cells() -> np.ndarray:
    """Return the index offsets of the cells nearer than CLEARANCE to a cell."""
    reach = np.arange(-FINE * _PAD, FINE * _PAD + 1)
    rows, columns = np.nonzero(np.hypot(reach[:, None], reach[None, :]) < FINE * CLEARANCE)
    return reach[rows] * _WIDTH + reach[columns]


def _draw_direction(rng: np.random.Generator) -> complex:
    return complex(np.exp(1j * rng.uniform(0, 2 * np.pi)))


_FREE, _NEAR = _make_free_ground(), _find_near_cells()


_STARTS_APART = 7.0  # distance between the starts of the two paths
_DISTRACTING_DASHES = 20  # in total
_THICKNESS, _DOT_RADIUS = 0.5, 1.5
EQUALLY_FAR, _DOTS_APART = 1.5, 5.0  # largest difference of the two distances, smallest distance
_RETRIES = 8  # for the second path and for each distractor
_ATTEMPTS = 10_000  # per picture; a few dozen normally suffice

_PIXELS = (np.arange(SIDE)[None, :] + 1j * np.arange(SIDE)[:, None]).astype(np.complex64)


@dataclass(frozen=True)
class Difficulty:
    """The length of the two paths; a distractor has a third of their dashes."""

    dashes: int

    @property
    def distractor_dashes(self) -> int:
        return self.dashes // 3

    @property
    def distractors(self) -> int:
        return _DISTRACTING_DASHES // self.distractor_dashes


DIFFICULTIES = {"easy": Difficulty(6), "intermediate": Difficulty(9), "hard": Difficulty(14)}


@dataclass(frozen=True)
class _Scene:
    """The contents of a picture: dashes as points (n, 3), the first dot, and the second dot for each label."""

    dashes: np.ndarray
    first_dot: complex
    second_dots: tuple[complex, complex]  # label 0: an end of the other path; label 1: of the same path

    def picture(self, label: int) -> np.ndarray:
        """Draw the scene with this label, uint8 (32, 32)."""
        starts = self.dashes[:, :1, None].astype(np.complex64)  # (n, 1, 1)
        headings = (self.dashes[:, -1:, None].astype(np.complex64) - starts) / DASH
        along = ((_PIXELS - starts) * headings.conj()).real.clip(0, DASH)
        away = np.abs(_PIXELS - starts - along * headings).min(0)
        dots = np.minimum(np.abs(_PIXELS - self.first_dot), np.abs(_PIXELS - self.second_dots[label]))
        ink = np.maximum((0.5 + _THICKNESS / 2 - away).clip(0, 1), (0.5 + _DOT_RADIUS - dots).clip(0, 1))
        return np.rint(255 * ink).astype(np.uint8)


def draw(seed: int, index: int, difficulty: Difficulty) -> tuple[int, np.ndarray]:
    """Return picture ``index`` of a seed and its label: 1, in every second picture, if one path joins the dots."""
    label = index % 2
    return label, draw_scene(np.random.default_rng((seed, index)), difficulty).picture(label)


def draw_scene(rng: np.random.Generator, difficulty: Difficulty) -> _Scene:
    """Draw paths until two of them have ends equally far apart, then add distractors."""
    for _ in range(_ATTEMPTS):
        paths = _grow_two_paths(rng, difficulty.dashes)
        dots = None if paths is None else _choose_dots(rng, *paths)
        if paths is not None and dots is not None:
            return _Scene(_add_distractors(rng, np.concatenate(paths), difficulty), *dots)
    raise LrpeError(f"{difficulty} does not fit into {SIDE} × {SIDE} pixels. Use fewer dashes.")


def _grow_two_paths(rng: np.random.Generator, dashes: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return two paths that start _STARTS_APART from each other, or None if they do not fit."""
    start = complex(*rng.uniform(SIDE / 4, 3 * SIDE / 4, 2))
    first = _grow(rng, _FREE, start, dashes)
    if first is None:
        return None
    ground = _mark(_FREE, first)
    tries = (_grow(rng, ground, start + _STARTS_APART * _draw_direction(rng), dashes) for _ in range(_RETRIES))
    second = next((path for path in tries if path is not None), None)
    return None if second is None else (first, second)


def _choose_dots(
    rng: np.random.Generator, one: np.ndarray, other: np.ndarray
) -> tuple[complex, tuple[complex, complex]] | None:
    """Return an end of a path and two ends equally far from it: of the other path and of the same one."""
    for which in rng.permutation(4):
        same, another = (one, other) if which < 2 else (other, one)
        ends = same[0, 0], same[-1, -1]
        dot, connected = ends if which % 2 else ends[::-1]
        apart = another[-1, -1] if which % 2 else another[0, 0]
        far, other_far = abs(dot - connected), abs(dot - apart)
        if abs(far - other_far) < EQUALLY_FAR and min(far, other_far) > _DOTS_APART:
            return dot, (apart, connected)
    return None


def _add_distractors(rng: np.random.Generator, dashes: np.ndarray, difficulty: Difficulty) -> np.ndarray:
    """Add up to ``difficulty.distractors`` short paths, as many as fit."""
    ground = _mark(_FREE, dashes)
    for _ in range(difficulty.distractors):
        starts = rng.uniform(_MARGIN, SIDE - 1 - _MARGIN, (_RETRIES, 2))
        tries = (_grow(rng, ground, complex(*start), difficulty.distractor_dashes) for start in starts)
        path = next((path for path in tries if path is not None), None)
        if path is not None:
            dashes, ground = np.concatenate([dashes, path]), _mark(ground, path)
    return dashes
