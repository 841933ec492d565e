import lrpe.lab.stamp as stamps
from lrpe.lab.stamp import describe, stamp


def test_a_package_that_is_not_installed_has_no_version():
    mark = stamp("no-such-package")
    assert mark["versions"]["no-such-package"] is None
    assert "no-such-package missing" in describe(mark)


def test_outside_a_repository_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(stamps, "_FOLDER", tmp_path)
    assert stamps.describe_commit() == {"commit": None, "dirty": None}
    assert "commit unknown" in describe(stamp())


def test_changes_since_the_commit_are_told():
    mark = stamp() | {"commit": "0123456789abcdef", "dirty": True}
    assert "commit 0123456789ab, with changes" in describe(mark)
    assert "changes" not in describe(mark | {"dirty": False})
