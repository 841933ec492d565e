import numpy as np
import pytest

from lrpe.lab.data.arena import image as lra_image
from lrpe.lab.data.catalog import load
from lrpe.lab.data.dataset import Draw

MEAN, DEVIATION = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])


@pytest.fixture
def folder(tmp_path):
    """A folder of the official layout with ten images per file."""
    generator = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = generator.integers(256, size=(10, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(10)
        records.tofile(tmp_path / name)
    return tmp_path


def colours(pixels: np.ndarray) -> np.ndarray:
    """Return normalised pixels as bytes (3, 32, 32) again."""
    return np.rint((pixels * DEVIATION[:, None, None] + MEAN[:, None, None]) * 255).astype(np.uint8)


def test_an_image_has_the_bytes_of_its_record_plane_by_plane(folder):
    dataset = load("cifar10", folder)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 45, "validation": 5, "test": 10}
    sample = dataset.splits["test"].sample(Draw(7))
    record = (folder / "test_batch.bin").read_bytes()[7 * 3073 : 8 * 3073]
    assert (sample["label"], sample["pixels"].dtype) == (7, np.float32)
    assert colours(sample["pixels"]).tobytes() == record[1:]
    assert dataset.show(sample).startswith("horse: ")


def test_colour_and_grey_share_splits_and_hash(folder):
    colour, grey = load("cifar10", folder), lra_image.load_cifar(folder)
    assert colour.facts["content"] == grey.facts["content"]
    for name, split in colour.splits.items():
        labels = [split.sample(Draw(i))["label"] for i in range(len(split))]
        assert labels == grey.splits[name].labels.tolist()


def test_training_images_are_flipped_and_shifted_and_others_are_not(folder):
    dataset = load("cifar10", folder)
    whole = colours(load("cifar10", folder, augment=False).splits["train"].sample(Draw(3))["pixels"])
    padded = np.pad(whole, ((0, 0), (4, 4), (4, 4)))
    crops = {
        side[:, y : y + 32, x : x + 32].tobytes() for side in both_ways(padded) for y in range(9) for x in range(9)
    }
    seen = set()
    for epoch in range(20):
        sample = dataset.splits["train"].sample(Draw(3, epoch))
        assert np.array_equal(sample["pixels"], dataset.splits["train"].sample(Draw(3, epoch))["pixels"])
        seen.add(black_margin(sample["pixels"]).tobytes())
    assert seen <= crops
    assert len(seen) > 10
    fixed = dataset.splits["validation"]
    assert np.array_equal(fixed.sample(Draw(1, 0))["pixels"], fixed.sample(Draw(1, 5))["pixels"])


def both_ways(padded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return padded, padded[:, :, ::-1]


def black_margin(pixels: np.ndarray) -> np.ndarray:
    """Return the bytes of an image whose margin, 0 after normalisation, is black."""
    return np.where(pixels == 0, 0, colours(pixels))
