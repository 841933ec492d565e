"""Dashed paths that wind through free ground and keep clear of each other. Points are complex numbers, in pixels."""

import numpy as np

SIDE = 32
DASH, GAP = 2.0, 1.5  # a path is dashes with gaps between them, and bends in the middle of a gap
CLEARANCE = 2.0  # between dashes that do not follow each other
MARGIN = 1.5  # to the border
TRIES = 16  # directions for a dash
SETBACKS, STEPS_BACK = 6, 4  # how often a path that finds no room takes back some dashes, and how many

TICKS = np.linspace(0.0, DASH, 3)  # the points of a dash that keep their distance
FINE, PAD = 3, 4  # the ground has so many cells a pixel, and so many pixels beyond each border
WIDTH = (SIDE + 2 * PAD) * FINE
ANGLES = np.linspace(-np.pi / 2, np.pi / 2, 181)  # a path turns by δ with density 2/π · cos²(δ)
SHARE_BELOW = 0.5 + ANGLES / np.pi + np.sin(2 * ANGLES) / (2 * np.pi)
TURNS = np.exp(1j * np.interp((np.arange(4096) + 0.5) / 4096, SHARE_BELOW, ANGLES))  # e^{iδ}, all equally likely


def grow(rng: np.random.Generator, ground: np.ndarray, start: complex, dashes: int) -> np.ndarray | None:
    """A path that keeps clear of what the ground holds and of itself, (dashes, 3); None if it ends in a corner."""
    path, grounds, setbacks = [start + direction(rng) * TICKS], [ground], 0  # a dash marks no ground for its next one
    if ground[cells(path[0])].any():
        return None
    while len(path) < dashes and setbacks <= SETBACKS:
        heading = (path[-1][-1] - path[-1][0]) / DASH
        headings = heading * TURNS[(rng.random(TRIES) * len(TURNS)).astype(np.intp)]
        tries = path[-1][-1] + GAP / 2 * heading + headings[:, None] * (GAP / 2 + TICKS)
        taken = grounds[-1][cells(tries)].any(1)
        if not taken.all():
            grounds.append(marked(grounds[-1], path[-1]))
            path.append(tries[taken.argmin()])
        else:
            kept, setbacks = max(1, len(path) - STEPS_BACK), setbacks + 1
            path, grounds = path[:kept], grounds[:kept]
    return np.array(path) if len(path) == dashes else None


def marked(ground: np.ndarray, dashes: np.ndarray) -> np.ndarray:
    """The ground with everything taken that is nearer than CLEARANCE to the dashes."""
    found = ground.copy()
    found[cells(dashes).reshape(-1, 1) + NEAR] = True
    return found


def cells(points: np.ndarray) -> np.ndarray:
    """Where points of the plane lie in the ground."""
    fine = (points + (1 + 1j) * PAD) * FINE
    return fine.imag.astype(np.intp) * WIDTH + fine.real.astype(np.intp)


def free_ground() -> np.ndarray:
    """Which cells are taken, as one long row: all but those that lie inside the picture with a margin."""
    places = (np.arange(WIDTH) + 0.5) / FINE - PAD
    inside = (places >= MARGIN) & (places <= SIDE - 1 - MARGIN)
    return ~np.outer(inside, inside).reshape(-1)


def near_cells() -> np.ndarray:
    """How far, in the ground, the cells nearer than CLEARANCE are from a cell."""
    reach = np.arange(-FINE * PAD, FINE * PAD + 1)
    rows, columns = np.nonzero(np.hypot(reach[:, None], reach[None, :]) < FINE * CLEARANCE)
    return reach[rows] * WIDTH + reach[columns]


def direction(rng: np.random.Generator) -> complex:
    return complex(np.exp(1j * rng.uniform(0, 2 * np.pi)))


FREE, NEAR = free_ground(), near_cells()
