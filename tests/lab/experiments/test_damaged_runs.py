"""Whatever befalls a run's folder, whoever reads it gets a sentence; and one damaged run hides no other."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lrpe import LrpeError
from lrpe.lab.cli import main
from lrpe.lab.cli.models import read_tokenizer
from lrpe.lab.experiments.build import find_checkpoint
from lrpe.lab.experiments.experiment import read_experiment
from lrpe.lab.experiments.run import is_finished
from lrpe.lab.experiments.runs_on_disk import list_runs
from lrpe.lab.report.explorer import learned
from lrpe.lab.report.runs import read_run
from lrpe.lab.training.checkpoint import CheckpointHistory
from lrpe.lab.training.record import Record
from lrpe.lab.training.run_files import read_last_update
from lrpe.models.saved import find_model, load_model
from tests.lab.experiments.damage import DAMAGES

STEP = "checkpoints/step-00000003"
FILES = (
    "config.yaml",
    "environment.json",
    "metrics.jsonl",
    "results.json",
    "train.log",
    "best",
    "last",
    "checkpoints",
    f"{STEP}/checkpoint.json",
    f"{STEP}/config.json",
    f"{STEP}/generation_config.json",
    f"{STEP}/model.safetensors",
    f"{STEP}/state/00001-of-00001.safetensors",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)
BY_CONTENT = {"cut", "other types", "other words", "negative", "huge", "zeros"}  # which a link or a folder has not
Reader = Callable[[Path], Any]
READERS: dict[str, tuple[Reader, ...]] = {  # who reads which file, by how its path begins
    "": (read_run, lambda run: list_runs(run.parent), read_last_update),
    "config.yaml": (read_experiment,),
    "results.json": (lambda run: is_finished(run, read_experiment(run)),),
    "train.log": (lambda run: Record(run, {}).log("a line"),),
    "checkpoints": (lambda run: read_last(run), lambda run: load_model(find_model(run)), find_checkpoint),
    "best": (lambda run: load_model(run / "best"), learned.read_run, find_checkpoint),
    "last": (lambda run: load_model(run / "last"),),
    "tokenizer": (lambda run: read_tokenizer(run / "tokenizer"),),
}


def read_last(run: Path) -> None:
    """A damaged checkpoint is put aside, and the one before it taken in its place."""
    history = CheckpointHistory(run)
    found = history.find_newest()
    if found is None or found.update != 3:
        raise LrpeError(history.damaged[0] if history.damaged else "There is none.")


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_damage_to_every_file_gets_a_sentence(trained, tmp_path, name):
    readers = [reader for start, several in READERS.items() if name.startswith(start) for reader in several]
    refused = set()
    for kind, damage in DAMAGES.items():
        if kind in BY_CONTENT and not (trained / name).is_file():
            continue
        for number, read in enumerate(readers):
            run = shutil.copytree(trained, tmp_path / f"{kind}-{number}" / "run", symlinks=True)
            damage(run / name)
            try:
                read(run)
            except LrpeError:
                refused.add(kind)
            shutil.rmtree(run.parent)
    assert refused or name in ("tokenizer/tokenizer_config.json", "metrics.jsonl")  # which nobody must have


def test_a_damaged_run_hides_no_other(trained, tmp_path, capsys):
    for name in ("good", "bad"):
        shutil.copytree(trained, tmp_path / "runs" / name, symlinks=True)
    (tmp_path / "runs" / "bad" / "config.yaml").write_text("column: [")
    assert main(["runs", "--runs", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.out.splitlines()[-2:]] == [["bad", "damaged"], ["good", "finished"]]
    assert "is not a readable run" in shown.err
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page")]) == 0
    assert "bad' is left out" in capsys.readouterr().err
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "Damaged" in page
    assert "Type 2" in page


def test_a_run_without_a_validation_yet_spoils_no_report(trained, tmp_path):
    for name in ("young", "old"):
        shutil.copytree(trained, tmp_path / "runs" / name, symlinks=True)
    young = tmp_path / "runs" / "young"
    for name in ("results.json", "best", "last", "metrics.jsonl"):
        (young / name).unlink()
    (young / "metrics.jsonl").write_text('{"update": 1, "loss": 2.5, "seconds": 0.5}\n')
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page")]) == 0


def test_a_report_tells_of_a_damaged_line_and_has_those_after_it(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0][:20], *lines[1:]]) + "\n")
    assert main(["report", str(run), "--out", str(tmp_path / "page")]) == 0
    assert f"Line 1 of {str(run / 'metrics.jsonl')!r} is damaged and left out" in capsys.readouterr().err
    assert [update for update, _ in read_run(run).points] == [1, 2, 3]


def test_results_that_cannot_be_read_are_made_again(trained, tmp_path, runs, capsys):
    run = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    before = (run / "results.json").read_text()
    (run / "results.json").write_text("{")
    words = ["train", "stdlib", "--method", "type2", "--scale", "smoke", "--runs", str(runs), "--out", str(run)]
    assert main(words) == 0
    assert "Scoring the run again" in capsys.readouterr().err
    assert (run / "results.json").read_text() == before


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda run: None, "finished"),
        (lambda run: (run / "results.json").unlink(), "interrupted"),
        (lambda run: diverge(run), "diverged"),
        (lambda run: (run / "environment.json").write_text("[]"), "damaged"),
    ],
)
def test_how_a_run_ended_is_told(trained, tmp_path, change, status):
    run = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    change(run)
    (listed,) = list_runs(tmp_path)
    assert listed.status == status
    with Record(run, {}).locked():
        (listed,) = list_runs(tmp_path)
        assert listed.status == ("running" if status != "damaged" else "damaged")


def diverge(run: Path) -> None:
    (run / "results.json").unlink()
    Record(run, {}).add(update=4, loss=float("nan"), diverged=1)
