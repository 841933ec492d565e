import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lrpe import LrpeError
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.images.augment import OPERATIONS, Augment, center_crop, draw_crop, erase, normalize, randaugment
from lrpe.lab.data.images.class_folders import load_images
from lrpe.lab.data.images.digits import load as load_digits

COLOURS = {"blue": (20, 30, 200), "red": (200, 30, 20)}


def paint(width: int, height: int, colour=(90, 120, 30)) -> Image.Image:
    ramp = np.linspace(0.5, 1, width * height).reshape(height, width, 1)
    return Image.fromarray((ramp * np.array(colour)).astype(np.uint8))


@pytest.fixture
def tree(tmp_path):
    """Two classes, four training and two validation images each, in the official layout."""
    for split, count in (("train", 4), ("val", 2)):
        for name, colour in COLOURS.items():
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                paint(40 + i, 30, colour).save(tmp_path / split / name / f"{i}.JPEG")
    return tmp_path


def test_classes_are_folders_in_order_and_splits_those_of_imagenet(tree):
    found = load_images(tree, size=16)
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 8, "validation": 4}
    labels = [found.splits["validation"].sample(Draw(i))["label"] for i in range(4)]
    assert labels == [0, 0, 1, 1]
    assert "blue" in found.show(found.splits["validation"].sample(Draw(0)))
    assert found.facts["labels"] == 2


def test_a_tree_without_splits_keeps_one_file_in_ten_for_validation(tree):
    for i in range(60):
        paint(20, 20).save(tree / "train" / "red" / f"more-{i}.png")
    found = load_images(tree / "train", size=16)
    sizes = {name: len(split) for name, split in found.splits.items()}
    assert sum(sizes.values()) == 68
    assert 0 < sizes["validation"] < 20


def test_training_varies_with_the_epoch_and_evaluation_does_not(tree):
    found = load_images(tree, size=16)
    train, validation = found.splits["train"], found.splits["validation"]
    first, again, other = (train.sample(Draw(0, epoch))["pixels"] for epoch in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, train.sample(Draw(0, 0, copy=1))["pixels"])
    assert np.array_equal(*(validation.sample(Draw(0, epoch))["pixels"] for epoch in (0, 1)))
    assert first.shape == (3, 16, 16)
    assert first.dtype == np.float32


def test_a_damaged_file_gives_way_to_the_next_and_is_named(tree):
    (tree / "val" / "blue" / "0.JPEG").write_bytes(b"\xff\xd8 this is no image")
    whole = (tree / "val" / "blue" / "1.JPEG").read_bytes()
    split = load_images(tree, size=16).splits["validation"]
    sample = split.sample(Draw(0))
    assert sample["skipped"] == [0]
    assert np.array_equal(sample["pixels"], split.sample(Draw(1))["pixels"])
    (tree / "val" / "blue" / "1.JPEG").write_bytes(whole[: len(whole) // 2])  # truncated
    assert split.sample(Draw(0))["skipped"] == [0, 1]


def test_too_many_damaged_files_are_an_error(tree):
    for file in tree.rglob("*.JPEG"):
        file.write_bytes(b"")
    with pytest.raises(LrpeError, match="4 files in a row cannot be decoded"):
        load_images(tree).splits["validation"].sample(Draw(0))


def test_a_tree_that_is_none_is_named(tree, tmp_path):
    with pytest.raises(LrpeError, match="is not a folder"):
        load_images(tree / "train" / "red" / "0.JPEG")
    with pytest.raises(LrpeError, match="At least two classes"):
        load_images(tree / "train" / "red")
    (tree / "val" / "green").mkdir()
    with pytest.raises(LrpeError, match="classes that training lacks: \\['green'\\]"):
        load_images(tree)
    for name in ("a", "b"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    with pytest.raises(LrpeError, match="Every split needs an image"):
        load_images(tmp_path / "empty")


@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 10**6))
def test_a_crop_lies_within_its_image(width, height, seed):
    generator = np.random.default_rng(seed)
    left, top, w, h = draw_crop((width, height), (0.08, 1), (3 / 4, 4 / 3), generator)
    assert 0 <= left <= left + w <= width
    assert 0 <= top <= top + h <= height
    assert min(w, h) >= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 10**6))
def test_any_image_becomes_one_of_the_size_that_is_asked_for(width, height, seed):
    image = paint(width, height)
    assert Augment()(image, 12, np.random.default_rng(seed)).shape == (3, 12, 12)
    assert center_crop(image, 12).shape == (3, 12, 12)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_keeps_the_size_and_most_change_the_image(name):
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    turned = OPERATIONS[name](image, 0.9, 1)
    assert turned.size == image.size
    if name != "autocontrast":  # noise has all the contrast there is
        assert not np.array_equal(np.asarray(turned), noise)


def test_the_strength_of_enhancing_has_either_sign():
    image = paint(10, 10)
    brighter, darker = (np.asarray(OPERATIONS["brightness"](image, 0.5, sign)).mean() for sign in (1, -1))
    assert darker < np.asarray(image).mean() < brighter


def test_randaugment_does_half_of_its_operations_and_refuses_a_magnitude_beyond_ten():
    image, generator = paint(8, 8), np.random.default_rng(0)
    unchanged = sum(np.array_equal(np.asarray(randaugment(image, 1, 9, 0.5, generator)), image) for _ in range(400))
    assert 160 < unchanged < 260  # half, and the few operations that leave a smooth ramp as it is
    with pytest.raises(LrpeError, match="between 0 and 10; got magnitude=11"):
        randaugment(image, 1, 11, 0.5, generator)


def test_erasing_puts_noise_into_a_part():
    pixels = normalize(paint(32, 32))
    erased = erase(pixels, np.random.default_rng(0))
    changed = (erased != pixels).any(0).mean()
    assert 0.01 < changed <= 0.4


def test_digits_are_on_every_machine_and_equal_ones_fall_together():
    found = load_digits()
    assert sum(len(split) for split in found.splits.values()) == 1797
    assert found.facts["labels"] == 10
    images = {name: {row["pixels"].tobytes() for row in split.rows} for name, split in found.splits.items()}
    assert not images["train"] & (images["validation"] | images["test"])
    assert abs(found.splits["train"].sample(Draw(0))["pixels"]).max() <= 1
    assert torch.from_numpy(found.splits["train"].sample(Draw(0))["pixels"]).shape == (1, 8, 8)


def png_header(width: int, height: int) -> bytes:
    """A picture of a few bytes that claims to be of any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(bytes(60_000)))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("width", "height", "said"),
    [
        (1, 60_000, "is 1 × 60000 pixels, too narrow"),
        (60_000, 1, "is 60000 × 1 pixels, too narrow"),
        (10_000, 10_000, "too large to be read"),  # Pillow only warns
        (60_000, 60_000, "too large to be read"),
    ],
)
def test_an_image_that_would_take_gigabytes_is_an_error_that_names_it(tree, width, height, said):
    file = tree / "val" / "blue" / "0.JPEG"
    file.write_bytes(png_header(width, height))
    with pytest.raises(LrpeError, match=said) as caught:
        load_images(tree, size=224).splits["validation"].sample(Draw(0))
    assert str(file) in str(caught.value)
