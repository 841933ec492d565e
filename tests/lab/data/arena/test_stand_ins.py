"""What every machine has in place of Long-Range Arena: nothing leaks from one split to another."""

import pytest

from lrpe import LrpeError
from lrpe.lab.data.arena import image, retrieval, text
from lrpe.lab.data.catalog import CATALOG
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.standard_library import read_modules


@pytest.fixture(scope="module")
def packages():
    return text.load_passages()


def test_every_package_has_as_many_passages(packages):
    for counts in packages.facts["balance"].values():
        assert len(set(counts)) == 1
        assert len(counts) == packages.facts["num_labels"] >= 5
    assert len(packages.splits["train"]) >= 500


def test_a_passage_comes_from_its_package(packages):
    split = packages.splits["test"]
    for i in range(0, len(split), 17):
        sample = split.sample(Draw(i))
        package = packages.facts["names"][sample["label"]]
        passage = bytes(sample["ids"])
        assert any(passage in module.text.encode() for module in read_modules() if module.package == package)


def test_no_file_is_in_two_splits():
    for modules in text.large_packages().values():
        parts = [set(text.select_split(modules, name)) for name in ("train", "validation", "test")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == len(modules)
        assert all(parts)


def test_every_second_pair_comes_from_one_module_and_no_module_is_in_two_splits():
    loaded = retrieval.load_stdlib_pairs(256, train=40, validation=20, test=20)
    modules = {name: [m.text.encode() for m in read_modules() if m.split == name] for name in loaded.splits}
    for name, split in loaded.splits.items():
        for i in range(len(split)):
            sample = split.sample(Draw(i))
            one, other = bytes(sample["ids"]), bytes(sample["pair_ids"])
            assert sample["label"] == i % 2
            assert any(one in text for text in modules[name])
            assert sample["label"] == 0 or any(one in text and other in text for text in modules[name])
    assert loaded.facts["balance"]["train"] == [20, 20]


def test_pairs_are_a_function_of_their_seed():
    def first(seed):
        split = retrieval.load_stdlib_pairs(256, train=4, validation=2, test=2, seed=seed).splits["train"]
        return [bytes(split.sequence(i)) for i in range(8)]

    assert first(1) == first(1) != first(2)


def test_digits_are_the_images_pixel_by_pixel():
    small, large = image.load_digits(), image.load_digits(scale=4)
    assert sum(len(split) for split in small.splits.values()) == 1797
    one, same = (loaded.splits["test"].sample(Draw(3)) for loaded in (small, large))
    assert one["ids"].shape == (64,)
    assert same["ids"].reshape(32, 32)[::4, ::4].reshape(-1).tolist() == one["ids"].tolist()
    assert one["ids"].max() == 255
    assert one["label"] == same["label"]
    assert small.show(one).startswith(f"{one['label']}: ")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (lambda: text.load_passages(10**7), "is too long. Reduce it"),
        (lambda: retrieval.load_stdlib_pairs(10**7), "is too long. Reduce it"),
        (lambda: retrieval.load_stdlib_pairs(train=0), "must each be at least 1"),
        (lambda: text.load_passages(0), "length must be at least 1"),
        (lambda: image.load_digits(0), "scale=0"),
    ],
)
def test_sizes_that_cannot_be_met_are_named(load, said):
    with pytest.raises(LrpeError, match=said):
        load()


def test_every_dataset_of_the_arena_is_in_the_catalog():
    official = {"lra-listops", "lra-pathfinder", "lra-text", "lra-retrieval", "lra-image", "citations"}
    here = {"listops", "pathfinder", "stdlib-packages", "stdlib-pairs", "digits-sequence"}
    assert all(not CATALOG[name].embedded for name in official)
    assert all(CATALOG[name].embedded for name in here)
