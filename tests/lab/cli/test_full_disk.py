"""Each verb that writes answers a full disk with one sentence, leaves no half file, and works when there is room."""

import pytest

from lrpe.lab.cli import main

pytestmark = pytest.mark.slow

LINES = {
    "export": ["export", "RUN", "--to", "DISK/model"],
    "export --remote-code": ["export", "RUN", "--to", "DISK/model", "--remote-code"],
    "report": ["report", "RUN", "--out", "DISK/report"],
    "table": ["table", "lm", "--rows", "type2", "--scale", "smoke", "--out", "DISK/table", "--runs", "RUN/.."],
    "explore": ["explore", "--out", "DISK/explorer.html"],
    "bench": ["bench", "encoding", "--save", "DISK/bench", "--quick"],
    "data prepare": ["data", "prepare", "stdlib"],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    runs = tmp_path_factory.mktemp("whole")
    smoke = ["--scale", "smoke"]
    assert main(["train", "stdlib", "--method", "type2", *smoke, "--runs", str(runs)]) == 0
    return next(runs.rglob("config.yaml")).parent


@pytest.mark.parametrize("verb", LINES)
def test_a_full_disk_is_answered_in_a_sentence(verb, small_disk, whole, capsys, monkeypatch):
    folder, resize = small_disk
    result = {"benchmark": "encoding", "lines": ["longer than the disk"] * 1000}
    monkeypatch.setattr("lrpe.lab.benchmarks.process.measure_apart", lambda *_, **__: (result, "text"))
    if verb == "data prepare":
        monkeypatch.setenv("LRPE_CACHE", str(folder / "cache"))
    line = [word.replace("RUN", str(whole)).replace("DISK", str(folder)) for word in LINES[verb]]
    assert main(line) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "Traceback" not in said
    assert "make room" in said or "Set LRPE_CACHE to another folder" in said
    assert not list(folder.rglob(".*.tmp"))
    resize(200_000)
    assert main(line) == 0
