import multiprocessing
import os
import signal
import time

import pytest

from lrpe import LrpeError
from lrpe.data.cache import cache_folder, prepared


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def slow_build(folder):
    (folder / "first").write_text("1")
    time.sleep(0.3)
    (folder / "built-by").write_text(str(os.getpid()))


def ask(results):
    folder = prepared("words", {"seed": 1}, slow_build)
    results.put((folder / "built-by").read_text())


def test_what_is_prepared_once_is_found_again():
    built = []
    for _ in range(2):
        folder = prepared("words", {"seed": 1}, lambda folder: built.append((folder / "x").write_text("x")))
    assert len(built) == 1
    assert (folder / "x").read_text() == "x"
    assert prepared("words", {"seed": 2}, lambda folder: None) != folder


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
        prepared("words", {}, fail)
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
    folder = prepared("words", {"seed": 1}, slow_build)
    assert (folder / "built-by").read_text() == str(os.getpid())
    assert not list(cache_folder().glob("*.tmp"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(LrpeError, match="LRPE_CACHE names another folder"):
        prepared("words", {}, lambda folder: None)
