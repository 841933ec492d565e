"""Pathfinder of Long-Range Arena: its published pictures of 32 × 32, and as many of our own as one likes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.data.arena.parallel import Processes, in_parallel
from lrpe.lab.data.arena.pathfinder_files import list_pictures, read_pictures, stamp
from lrpe.lab.data.arena.pathfinder_generator import DIFFICULTIES, Difficulty, draw
from lrpe.lab.data.arena.pathfinder_paths import SIDE
from lrpe.lab.data.arena.sequences import Row, Sequences, Size, facts, stored
from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.data.entry import Entry
from lrpe.typed import Seed

VERSION = 1  # of what is written to the cache
FOLDERS = {"easy": "curv_baseline", "intermediate": "curv_contour_length_9", "hard": "curv_contour_length_14"}
BLOCK = 64  # pictures that a process makes or reads at a time
SHARES = {"train": (0, 80), "validation": (80, 90), "test": (90, 100)}  # per cent of the published pictures


def load_generated(
    difficulty: str = "hard",
    train: Size = 16_000,
    validation: Size = 2_000,
    test: Size = 2_000,
    seed: Seed = 0,
    processes: Processes | None = None,
) -> Dataset:
    """Generated pictures; ``difficulty`` is easy, intermediate or hard: paths of 6, 9 or 14 dashes."""
    if difficulty not in DIFFICULTIES:
        raise unknown_name("difficulty", difficulty, DIFFICULTIES)
    sizes = {"train": train, "validation": validation, "test": test}
    require(min(sizes.values()) >= 1, f"A split has one sample or more; got {sizes}.")
    recipe = {"version": VERSION, "seed": seed, "total": sum(sizes.values()), "difficulty": difficulty}
    rows = partial(generate, sum(sizes.values()), seed, DIFFICULTIES[difficulty], processes)
    stored_splits, content = stored(Sequences, "pathfinder", recipe, {"all": rows})
    whole = stored_splits["all"]
    parts = (whole.part(0, train), whole.part(train, train + validation), whole.part(train + validation, len(whole)))
    return dataset(
        "pathfinder", dict(zip(sizes, parts, strict=True)), seed=seed, difficulty=difficulty, content=content
    )


def generate(total: int, seed: int, difficulty: Difficulty, processes: int | None = None) -> Iterator[Row]:
    """Pictures 0 ... total - 1 of a seed, row by row: the same for any number of processes."""
    blocks = [range(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK)]
    for rows in in_parallel(partial(draw_block, seed, difficulty), blocks, "Pathfinder", processes, "blocks"):
        yield from rows


def draw_block(seed: int, difficulty: Difficulty, numbers: range) -> list[Row]:
    drawn = (draw(seed, number, difficulty) for number in numbers)
    return [(label, (picture.tobytes(),)) for label, picture in drawn]


def load_official(path: Path, difficulty: str = "hard", processes: Processes | None = None) -> Dataset:
    """The published folders, under ``path`` or ``path``/pathfinder32. The first 80 % in the order of the metadata are
    for training, then 10 % each for validation and test."""
    if difficulty not in FOLDERS:
        raise unknown_name("difficulty", difficulty, FOLDERS)
    roots = [root / FOLDERS[difficulty] for root in (path, path / "pathfinder32")]
    folder = next((root for root in roots if (root / "metadata").is_dir()), None)
    if folder is None:
        raise LrpeError(f"{difficulty} is read from {str(roots[0])!r} with its metadata/ and imgs/; it is not there.")
    pictures = list_pictures(folder)
    parts = {name: pictures[len(pictures) * a // 100 : len(pictures) * b // 100] for name, (a, b) in SHARES.items()}
    recipe = {"version": VERSION, "difficulty": difficulty, "sources": stamp(pictures)}
    rows = {name: partial(read_pictures, part, processes) for name, part in parts.items()}
    splits, content = stored(Sequences, "lra-pathfinder", recipe, rows)
    return dataset("lra-pathfinder", splits, content=content, difficulty=difficulty)


def dataset(name: str, splits: dict[str, Sequences], **more: object) -> Dataset:
    return Dataset(name, {**splits}, facts(splits, vocabulary=256, labels=2, padding=None, side=SIDE, **more), show)


def show(sample: Sample) -> str:
    rows = sample["ids"].reshape(SIDE, SIDE)[::2, ::2]
    drawn = "|".join("".join(" .:*#"[pixel // 52] for pixel in row) for row in rows)
    return f"{('apart', 'connected')[sample['label']]}: {drawn}"


ENTRIES = (
    Entry(
        "pathfinder",
        "sequence",
        "are two dots joined by a dashed path? 32 × 32 pixels, generated",
        "MIT (generated here)",
        "lrpe, which makes it",
        None,
        load_generated,
    ),
    Entry(
        "lra-pathfinder",
        "sequence",
        "Pathfinder of Long-Range Arena, the published pictures of 32 × 32",
        "Apache 2.0 (Long-Range Arena), MIT (the generator of Linsley et al.)",
        "https://github.com/google-research/long-range-arena (lra_release.gz, pathfinder32)",
        "pathfinder32/{curv_baseline,curv_contour_length_9,curv_contour_length_14}/{imgs/*/*.png,metadata/*.npy}",
        load_official,
    ),
)
