import errno
import multiprocessing
import os
import signal
import socket
import time

import pytest

from lrpe import LrpeError
from lrpe.lab.caches import cache_folder
from lrpe.lab.data import cache
from lrpe.lab.data.cache import content_hash, prepare, waiting_lock


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def slow_build(folder):
    (folder / "first").write_text("1")
    time.sleep(0.3)
    (folder / "built-by").write_text(str(os.getpid()))


def ask(results):
    folder = prepare("words", {"seed": 1}, slow_build)
    results.put((folder / "built-by").read_text())


def test_what_is_prepared_once_is_found_again():
    built = []
    for _ in range(2):
        folder = prepare("words", {"seed": 1}, lambda folder: built.append((folder / "x").write_text("x")))
    assert len(built) == 1
    assert (folder / "x").read_text() == "x"
    assert prepare("words", {"seed": 2}, lambda folder: None) != folder


def test_processes_that_ask_at_once_get_one_result():
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=ask, args=(results,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len({results.get() for _ in processes}) == 1


def test_a_build_that_fails_leaves_nothing():
    def fail(folder):
        (folder / "half").write_text("half")
        raise LrpeError("the source is broken")

    with pytest.raises(LrpeError, match="broken"):
        prepare("words", {}, fail)
    assert [file.name for file in cache_folder().iterdir() if not file.name.endswith(".lock")] == []


def test_a_build_that_is_killed_leaves_nothing_that_is_found_and_is_done_again():
    context = multiprocessing.get_context("fork")
    process = context.Process(target=ask, args=(context.Queue(),))
    process.start()
    deadline = time.monotonic() + 10
    while not list(cache_folder().glob(".words-*.tmp/first")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not list(cache_folder().glob("words-*"))
    folder = prepare("words", {"seed": 1}, slow_build)
    assert (folder / "built-by").read_text() == str(os.getpid())
    assert not list(cache_folder().glob("*.tmp"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(LrpeError, match="Set LRPE_CACHE to another folder"):
        prepare("words", {}, lambda folder: None)


def fill(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "tokens").write_bytes(bytes(range(256)))
    (folder / "facts.json").write_text("{}")


def zero(folder):
    """A power cut: the size is there, the contents are not, and the time tells nothing."""
    state = (folder / "deep" / "tokens").stat()
    (folder / "deep" / "tokens").write_bytes(bytes(256))
    os.utime(folder / "deep" / "tokens", ns=(state.st_atime_ns, state.st_mtime_ns + 1))


@pytest.mark.parametrize(
    "damage",
    [
        zero,
        lambda folder: os.truncate(folder / "deep" / "tokens", 100),
        lambda folder: os.truncate(folder / "facts.json", 0),
        lambda folder: (folder / "deep" / "tokens").unlink(),
        lambda folder: (folder / "facts.json").write_text("[]"),
        lambda folder: (folder / "manifest.json").write_text('{"files": {"facts.json"'),
        lambda folder: (folder / "manifest.json").write_text('{"files": {"facts.json": 3}}'),
        lambda folder: (folder / "manifest.json").unlink(),
    ],
)
def test_what_is_damaged_is_prepared_again_and_said_in_one_line(damage, capsys):
    folder = prepare("words", {}, fill)
    before = content_hash(folder)
    assert capsys.readouterr().err == ""
    damage(folder)
    assert prepare("words", {}, fill) == folder
    assert capsys.readouterr().err.count("\n") == 1
    assert (folder / "deep" / "tokens").read_bytes() == bytes(range(256))
    assert content_hash(folder) == before
    prepare("words", {}, lambda folder: pytest.fail("it is whole now"))


def test_zeros_that_were_there_before_the_process_began_are_found(monkeypatch, capsys):
    folder = prepare("words", {}, fill)
    prepare("words", {}, fill)  # which has checked it
    state = (folder / "deep" / "tokens").stat()
    (folder / "deep" / "tokens").write_bytes(bytes(256))
    os.utime(folder / "deep" / "tokens", ns=(state.st_atime_ns, state.st_mtime_ns))
    monkeypatch.setattr(cache, "_verified", set())  # as in a new process
    prepare("words", {}, fill)
    assert "deep/tokens is not what was written; preparing it again" in capsys.readouterr().err


def test_a_file_is_hashed_once_per_process(monkeypatch):
    prepare("words", {}, fill)
    prepare("words", {}, fill)
    monkeypatch.setattr(cache, "hash_files", lambda *_: pytest.fail("hashed again"))
    prepare("words", {}, fill)


def test_a_prepared_folder_is_on_the_disk_before_it_has_its_name(monkeypatch):
    synced = []
    monkeypatch.setattr("lrpe.atomic.sync", lambda path: synced.append((path.name, path.exists())))
    folder = prepare("words", {}, fill)
    names = [name for name, _ in synced]
    assert {"tokens", "facts.json", "manifest.json", "deep"} <= set(names)
    assert names[-1] == folder.parent.name  # the name itself


def hold(file, held, seconds):
    with waiting_lock(file, "words"):
        held.set()
        time.sleep(seconds)


def test_waiting_for_a_lock_says_for_whom_and_how_long(tmp_path, capsys):
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(tmp_path / ".lock", held, 1.5))
    process.start()
    held.wait()
    with waiting_lock(tmp_path / ".lock", "words"):
        said = capsys.readouterr().err
    process.join()
    assert f"Waiting for process {process.pid} on {socket.gethostname()}, for 0 min" in said
    assert "which prepares words" in said


def test_without_a_home_folder_the_error_names_the_variable(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LRPE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", no_home)
    with pytest.raises(LrpeError, match="set LRPE_CACHE to a folder"):
        prepare("words", {}, fill)


def test_a_cache_that_can_only_be_read_is_read(monkeypatch):
    folder = prepare("words", {}, fill)

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pathlib.Path.mkdir", read_only)
    assert prepare("words", {}, fill) == folder
    with pytest.raises(LrpeError, match=r"Read-only file system\. Set LRPE_CACHE to another folder"):
        prepare("words", {"other": 1}, fill)
