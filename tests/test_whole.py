import pytest

from lrpe.whole import whole_folder, write_whole


def test_a_file_is_replaced_whole_or_left_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "result.txt"
    write_whole(file, "first")
    write_whole(file, "second")
    assert file.read_text() == "second"
    monkeypatch.setattr(type(file), "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_whole(file, "third")
    assert file.read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["result.txt"]


def test_a_folder_has_its_name_when_it_is_full_and_not_before(tmp_path):
    with whole_folder(tmp_path / "deep" / "data") as folder:
        (folder / "a").write_text("a")
        assert not (tmp_path / "deep" / "data").exists()
    assert (tmp_path / "deep" / "data" / "a").read_text() == "a"


def test_a_folder_that_could_not_be_filled_is_not_there(tmp_path):
    def half(folder):
        (folder / "half").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "data") as folder:
        half(folder)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_and_a_full_one_is_not_overwritten(tmp_path):
    (tmp_path / "data").mkdir()
    with whole_folder(tmp_path / "data") as folder:
        (folder / "a").write_text("a")
    with pytest.raises(OSError, match="not empty"), whole_folder(tmp_path / "data") as folder:
        (folder / "b").write_text("b")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["a"]
