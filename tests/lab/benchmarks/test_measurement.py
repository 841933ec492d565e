import errno
import json
from pathlib import Path

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.measurement import prepare, result_files, save


def test_json_and_text_are_saved_side_by_side(tmp_path):
    json_file, text_file = save(tmp_path / "encoding", {"ratio": 1.5}, "1.5 copies of Λ")
    assert json.loads(json_file.read_text(encoding="utf-8")) == {"ratio": 1.5}
    assert text_file.read_text(encoding="utf-8") == "1.5 copies of Λ\n"


@pytest.mark.parametrize("path", ["a/encoding", "a/encoding.json", "a/encoding.txt"])
def test_either_name_means_both_files(path):
    assert result_files(Path(path)) == (Path("a/encoding.json"), Path("a/encoding.txt"))


def test_a_dot_in_the_name_stays():
    assert result_files(Path("2026-11.v2"))[0] == Path("2026-11.v2.json")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    save(tmp_path / "encoding", {"run": 1}, "first")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("lrpe.atomic.os.fsync", full)
    with pytest.raises(LrpeError, match=r"encoding\.json could not be written: no space left"):
        save(tmp_path / "encoding", {"run": 2}, "second")
    assert json.loads((tmp_path / "encoding.json").read_bytes()) == {"run": 1}
    assert {file.name for file in tmp_path.iterdir()} == {"encoding.json", "encoding.txt"}


def test_a_folder_that_cannot_be_written_is_known_before_the_measurement(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LrpeError, match="cannot be written"):
        prepare(tmp_path / "file" / "encoding")
    prepare(tmp_path / "new" / "encoding")
    assert list((tmp_path / "new").iterdir()) == []
