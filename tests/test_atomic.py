import errno
import os
from pathlib import Path

import pytest

from lrpe import LrpeError, atomic
from lrpe.atomic import atomic_folder, temporary_name, write_atomically


def test_a_file_is_replaced_whole_or_left_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "result.txt"
    write_atomically(file, "first")
    write_atomically(file, "second")
    assert file.read_text() == "second"
    monkeypatch.setattr(type(file), "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_atomically(file, "third")
    assert file.read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["result.txt"]


def test_a_folder_has_its_name_when_it_is_full_and_not_before(tmp_path):
    with atomic_folder(tmp_path / "deep" / "data") as folder:
        (folder / "a").write_text("a")
        assert not (tmp_path / "deep" / "data").exists()
    assert (tmp_path / "deep" / "data" / "a").read_text() == "a"


def test_a_folder_that_could_not_be_filled_is_not_there(tmp_path):
    def half(folder):
        (folder / "half").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "data") as folder:
        half(folder)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_and_a_full_one_is_not_overwritten(tmp_path):
    (tmp_path / "data").mkdir()
    with atomic_folder(tmp_path / "data") as folder:
        (folder / "a").write_text("a")
    with pytest.raises(OSError, match="not empty"), atomic_folder(tmp_path / "data") as folder:
        (folder / "b").write_text("b")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["a"]


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """The name cannot be guessed; if it were, the file would not be written rather than written elsewhere."""
    (tmp_path / "theirs").write_text("kept")
    (tmp_path / f".result.txt.{os.getpid()}.tmp").symlink_to(tmp_path / "theirs")
    write_atomically(tmp_path / "result.txt", "mine")
    assert (tmp_path / "result.txt").read_text() == "mine"
    monkeypatch.setattr(atomic, "temporary_name", lambda path: tmp_path / "guessed")
    (tmp_path / "guessed").symlink_to(tmp_path / "theirs")
    with pytest.raises(LrpeError, match="move away what lies there"):
        write_atomically(tmp_path / "result.txt", "again")
    assert (tmp_path / "theirs").read_text() == "kept"
    assert (tmp_path / "result.txt").read_text() == "mine"


def test_a_name_is_another_each_time():
    assert temporary_name(Path("a")) != temporary_name(Path("a"))


def test_what_a_killed_writer_left_is_removed_the_day_after_and_nothing_else(tmp_path):
    names = [".data.0123456789abcdef.tmp", ".data.4711.tmp", ".data.fresh.tmp", ".database.0123.tmp", ".data.abcd.tmp"]
    for name in names[:-1]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("half")
        for path in (tmp_path / name / "half", tmp_path / name):
            os.utime(path, (1, 1))
    (tmp_path / names[-1]).mkdir()  # somebody may still be filling this one
    with atomic_folder(tmp_path / "data"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"data", *names[2:]}


@pytest.mark.parametrize(
    ("number", "way_out"), [(errno.ENOSPC, "make room"), (errno.EACCES, "make it writable"), (errno.EROFS, "another")]
)
def test_what_cannot_be_written_is_named_with_the_reason_and_the_way_out(tmp_path, monkeypatch, number, way_out):
    def fail(_):
        raise OSError(number, os.strerror(number))

    write_atomically(tmp_path / "result.txt", "first")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LrpeError, match=rf"result.txt could not be written: {os.strerror(number)}.*{way_out}"):
        write_atomically(tmp_path / "result.txt", "second")
    assert (tmp_path / "result.txt").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["result.txt"]
