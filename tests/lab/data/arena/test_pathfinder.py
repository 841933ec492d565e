"""Pathfinder: pictures that give nothing away but by their paths, and the published folders."""

import numpy as np
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from lrpe import LrpeError
from lrpe.lab.data.arena import pathfinder
from lrpe.lab.data.arena.pathfinder_generator import (
    CLEARANCE,
    DASH,
    DIFFICULTIES,
    EQUALLY_FAR,
    FINE,
    GAP,
    SIDE,
    draw,
    draw_scene,
)
from lrpe.lab.data.dataset import Draw


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def scenes(difficulty, count, seed=0):
    return [draw_scene(np.random.default_rng((seed, i)), DIFFICULTIES[difficulty]) for i in range(count)]


@pytest.mark.parametrize(("name", "dashes", "distractors"), [("easy", 6, 10), ("intermediate", 9, 6), ("hard", 14, 5)])
def test_a_difficulty_is_the_length_of_the_paths(name, dashes, distractors):
    difficulty = DIFFICULTIES[name]
    assert (difficulty.dashes, difficulty.distractors) == (dashes, distractors)
    for found in scenes(name, 3):
        most = 2 * dashes + distractors * difficulty.distractor_dashes
        assert 2 * dashes < len(found.dashes) <= most


def test_one_dot_of_each_label_is_the_other_end_of_the_first_ones_path():
    for found in scenes("hard", 10):
        paths = found.dashes[:14], found.dashes[14:28]
        ends = [{path[0, 0], path[-1, -1]} for path in paths]
        mine = next(both for both in ends if found.first_dot in both)
        apart, connected = found.second_dots
        assert {found.first_dot, connected} == mine
        assert apart not in mine
        assert any(apart in both for both in ends)
        assert abs(abs(found.first_dot - apart) - abs(found.first_dot - connected)) < EQUALLY_FAR


def test_a_path_goes_on_after_each_gap_and_keeps_clear_of_all_others():
    for found in scenes("hard", 5):
        path = found.dashes[:14]
        assert np.allclose(abs(path[:, -1] - path[:, 0]), DASH)
        assert (abs(path[1:, 0] - path[:-1, -1]) <= GAP + 1e-9).all()
        others = abs(path[:, :, None, None] - found.dashes[None, None, 14:])
        assert others.min() > CLEARANCE - 2 / FINE  # the ground is that coarse
        assert found.dashes.real.min() > 0
        assert found.dashes.imag.max() < SIDE - 1


def test_a_dash_and_a_dot_are_where_they_should_be():
    found = scenes("easy", 1)[0]
    for label in (0, 1):
        pixels = found.picture(label)
        for dot in (found.first_dot, found.second_dots[label]):
            assert pixels[round(dot.imag), round(dot.real)] == 255
        middles = found.dashes[:, 1]
        assert (pixels[np.rint(middles.imag).astype(int), np.rint(middles.real).astype(int)] > 0).all()
        assert pixels.dtype == np.uint8
        assert pixels.shape == (SIDE, SIDE)


@pytest.mark.parametrize(("difficulty", "count"), [("easy", 400), ("hard", 200)])
def test_the_distance_of_the_dots_and_the_ink_tell_nothing(difficulty, count):
    """A logistic regression on both, fitted and measured on different pictures, stays near one half: on n pictures a
    fair coin exceeds 1/2 + 3.1 · 1/(2√n) once in a thousand times."""
    features, labels = [], []
    for i, found in enumerate(scenes(difficulty, count, seed=1)):
        label = i % 2
        ink = found.picture(label).sum() / 255
        distance = abs(found.first_dot - found.second_dots[label])
        features.append([distance, ink, distance**2, distance * ink])
        labels.append(label)
    scaled = StandardScaler().fit_transform(np.array(features))
    cut = count // 4
    fitted = LogisticRegression().fit(scaled[:cut], labels[:cut])
    assert fitted.score(scaled[cut:], labels[cut:]) < 0.5 + 3.1 / (2 * (count - cut) ** 0.5)


def test_a_shortcut_would_be_found():
    """The same measure on pictures whose dots are near each other if they are connected."""
    features, labels = [], []
    for i, found in enumerate(scenes("easy", 160, seed=1)):
        ends = [found.first_dot, *found.second_dots]
        distance = abs(ends[0] - ends[1]) * (0.7 if i % 2 else 1)
        features.append([distance])
        labels.append(i % 2)
    scaled = StandardScaler().fit_transform(np.array(features))
    assert LogisticRegression().fit(scaled[:40], labels[:40]).score(scaled[40:], labels[40:]) > 0.6


def test_a_picture_is_a_function_of_its_seed_and_number():
    difficulty = DIFFICULTIES["easy"]
    assert (draw(1, 5, difficulty)[1] == draw(1, 5, difficulty)[1]).all()
    assert (draw(1, 5, difficulty)[1] != draw(1, 6, difficulty)[1]).any()
    assert (draw(1, 5, difficulty)[1] != draw(2, 5, difficulty)[1]).any()


def test_any_number_of_processes_makes_the_same_pictures(monkeypatch):
    monkeypatch.setattr(pathfinder, "BLOCK", 8)
    alone = list(pathfinder.generate(20, 0, DIFFICULTIES["easy"], processes=1))
    assert list(pathfinder.generate(20, 0, DIFFICULTIES["easy"], processes=2)) == alone
    assert [label for label, _ in alone] == [0, 1] * 10


def test_generated_splits_are_balanced_and_share_no_picture(monkeypatch):
    made = pathfinder.load_generated("easy", 20, 10, 10, processes=1)
    assert made.facts["balance"] == {"train": [10, 10], "validation": [5, 5], "test": [5, 5]}
    seen = {bytes(split.sequence(i)) for split in made.splits.values() for i in range(len(split))}
    assert len(seen) == 40
    assert made.show(made.splits["test"].sample(Draw(1))).startswith("connected: ")
    monkeypatch.setattr(pathfinder, "generate", lambda *_: pytest.fail("it was made before"))
    assert pathfinder.load_generated("easy", 20, 10, 10).facts == made.facts


def write_official(root, count=10, folder="curv_contour_length_14"):
    """Text under the name of .npy, as it was published."""
    images, metadata = root / folder / "imgs" / "0", root / folder / "metadata"
    images.mkdir(parents=True)
    metadata.mkdir()
    lines = []
    for i in range(count):
        Image.fromarray(np.full((SIDE, SIDE), i, dtype=np.uint8)).save(images / f"sample_{i}.png")
        lines.append(f"imgs/0 sample_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1\n")
    (metadata / "0.npy").write_text("".join(lines))
    return metadata / "0.npy", images


@pytest.mark.parametrize("above", ["", "pathfinder32"])
def test_the_official_folders_are_read_in_their_order(tmp_path, above):
    write_official(tmp_path / above)
    loaded = pathfinder.load_official(tmp_path, processes=1)
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 8, "validation": 1, "test": 1}
    sample = loaded.splits["test"].sample(Draw(0))
    assert sample["label"] == 1
    assert sample["ids"].tolist() == [9] * 1024


def test_metadata_may_be_an_array_and_an_empty_picture_is_left_out(tmp_path):
    file, images = write_official(tmp_path, count=11)
    np.save(file, np.array([line.split() for line in file.read_text().splitlines()]))
    (images / "sample_0.png").write_bytes(b"")
    loaded = pathfinder.load_official(tmp_path, processes=1)
    assert sum(len(split) for split in loaded.splits.values()) == 10
    assert loaded.splits["train"].sample(Draw(0))["ids"][0] == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("imgs/0 sample_0.png 0", "row 1: it must have a folder, a file, a number and a label"),
        ("imgs/0 sample_0.png 0 2", "row 1: it must have a folder, a file, a number and a label"),
        ("imgs/0 sample_99.png 0 1", "sample_99.png', which does not exist"),
        ("../../imgs sample_0.png 0 1", "points outside"),
        ("/etc hosts 0 1", "points outside"),
    ],
)
def test_a_wrong_row_of_metadata_is_named(tmp_path, row, said):
    file, _ = write_official(tmp_path)
    file.write_text(row + "\n")
    with pytest.raises(LrpeError, match=said):
        pathfinder.load_official(tmp_path, processes=1)


@pytest.mark.parametrize("content", [b"\xff\xfe broken", b"\x93NUMPY\x01\x00v", b"\x93NUMPY"])
def test_metadata_that_cannot_be_read_are_named(tmp_path, content):
    file, _ = write_official(tmp_path)
    file.write_bytes(content)
    with pytest.raises(LrpeError, match=r"0.npy"):
        pathfinder.load_official(tmp_path, processes=1)


def test_a_broken_or_wrong_picture_is_named_and_leaves_nothing(tmp_path):
    _, images = write_official(tmp_path)
    (images / "sample_3.png").write_bytes((images / "sample_3.png").read_bytes()[:40])
    with pytest.raises(LrpeError, match=r"sample_3.png' cannot be read as a picture"):
        pathfinder.load_official(tmp_path, processes=1)
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(images / "sample_3.png")
    with pytest.raises(LrpeError, match=r"sample_3.png' must be 32 × 32 pixels; got \(8, 8\)"):
        pathfinder.load_official(tmp_path, processes=1)
    assert not list((tmp_path / "cache").glob("lra-pathfinder*"))


def test_names_and_folders_that_are_not_there_are_named(tmp_path):
    with pytest.raises(LrpeError, match="no difficulty named 'heard'"):
        pathfinder.load_official(tmp_path, "heard")
    with pytest.raises(LrpeError, match="Did you mean 'easy'"):
        pathfinder.load_generated("eazy")
    with pytest.raises(LrpeError, match=r"metadata/ and imgs/ in .*; metadata/ is missing"):
        pathfinder.load_official(tmp_path)
