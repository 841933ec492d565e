import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.arena import image as lra_image
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.images import cifar


def records(count, seed=0):
    made = np.random.default_rng(seed).integers(256, size=(count, 3073), dtype=np.uint8)
    made[:, 0] = np.arange(count) % 10
    return made


def write_official(folder, count=10):
    for i in range(1, 6):
        records(count, seed=i).tofile(folder / f"data_batch_{i}.bin")
    records(count).tofile(folder / "test_batch.bin")
    return folder


@pytest.mark.parametrize("above", ["", "cifar-10-batches-bin"])
def test_the_official_files_are_read_and_the_last_tenth_is_for_validation(tmp_path, above):
    (tmp_path / above).mkdir(exist_ok=True)
    write_official(tmp_path / above)
    loaded = lra_image.load_cifar(tmp_path)
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 45, "validation": 5, "test": 10}
    sample = loaded.splits["validation"].sample(Draw(4))
    assert sample["label"] == 9
    assert sample["ids"].shape == (1024,)
    assert loaded.show(sample).startswith("truck: ")


def test_grey_is_the_usual_mean_of_red_green_and_blue():
    made = records(7)
    red, green, blue = made[:, 1:].reshape(7, 3, 1024).transpose(1, 0, 2).astype(float)
    expected = np.floor(0.299 * red + 0.587 * green + 0.114 * blue + 0.5 + 1e-9)
    split = lra_image.grey_sequences(made)
    assert np.array_equal(split.ids.reshape(7, 1024), expected)
    white = np.full((1, 3073), 255, dtype=np.uint8)
    assert (lra_image.to_grey(white) == 255).all()


def test_a_truncated_file_and_a_wrong_label_are_named_with_their_offset(tmp_path):
    write_official(tmp_path)
    file = tmp_path / "data_batch_3.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(
        LrpeError, match=r"data_batch_3.bin' must consist of records of 3073 bytes; the one at offset 27657 has 3072"
    ):
        lra_image.load_cifar(tmp_path)
    file.write_bytes(b"")
    with pytest.raises(LrpeError, match=r"data_batch_3.bin' must consist of records"):
        lra_image.load_cifar(tmp_path)
    file.write_bytes(whole[: 2 * 3073] + b"\x0a" + whole[2 * 3073 + 1 :])
    with pytest.raises(LrpeError, match=r"data_batch_3.bin', offset 6146: the label must be 0 ... 9; got 10"):
        lra_image.load_cifar(tmp_path)


def test_what_is_not_there_or_a_folder_is_named(tmp_path):
    with pytest.raises(LrpeError, match=r"data_batch_1.bin ... data_batch_5.bin and test_batch.bin"):
        lra_image.load_cifar(tmp_path)
    write_official(tmp_path)
    (tmp_path / "test_batch.bin").unlink()
    (tmp_path / "test_batch.bin").mkdir()
    with pytest.raises(LrpeError, match=r"test_batch.bin' cannot be read"):
        lra_image.load_cifar(tmp_path)


@given(st.integers(0, 3 * 3073), st.integers(0, 255))
def test_any_length_is_records_or_a_clear_error(tmp_path_factory, length, byte):
    file = tmp_path_factory.mktemp("fuzz") / "test_batch.bin"
    file.write_bytes(bytes([byte]) * length)
    if length and length % 3073 == 0 and byte < 10:
        assert len(cifar.read_records(file)) == length // 3073
    else:
        with pytest.raises(LrpeError, match=r"test_batch.bin'.* (offset|cannot)"):
            cifar.read_records(file)
