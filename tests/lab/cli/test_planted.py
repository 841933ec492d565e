"""A run that a stranger made runs nothing of theirs, in whatever verb and wherever its code was planted."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lrpe.lab.cli import main
from lrpe.lab.cli.command_line import VERBS
from lrpe.lab.data.cache import hash_files

pytestmark = pytest.mark.slow

STEP = "checkpoints/step-00000003"
ROW = ["--method", "type2", "--scale", "smoke"]
Plant = Callable[[Path, Path], None]


class Attack:
    """Unpickling this makes a folder."""

    def __init__(self, made: Path):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


def in_the_state(run: Path, made: Path) -> None:
    """Where earlier versions had the pickled index of an optimiser's state, and its tensors."""
    state = run / STEP / "state"
    for file in state.iterdir():
        file.unlink()
    (state / ".metadata").write_bytes(pickle.dumps(Attack(made)))
    torch.save(Attack(made), state / "__0_0.distcp")


def in_the_weights(run: Path, made: Path) -> None:
    """Where torch and transformers had pickled weights, in place of safetensors."""
    (run / STEP / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.bin", "optimizer.pt", "training_args.bin"):
        torch.save(Attack(made), run / STEP / name)


def beside_the_weights(run: Path, made: Path) -> None:
    torch.save(Attack(made), run / STEP / "pytorch_model.bin")


def in_the_yaml(run: Path, made: Path) -> None:
    file = run / "config.yaml"
    file.write_text(file.read_text() + f"\nlabel: !!python/object/apply:os.mkdir ['{made}']\n")


def as_code(run: Path, made: Path) -> None:
    """Where transformers looks for the code of models and tokenisers, if it is allowed to."""
    classes = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForCausalLM"), "evil.Evil")
    tokenizers = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    for name, auto_map in {f"{STEP}/config.json": classes, "tokenizer/tokenizer_config.json": tokenizers}.items():
        values = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(values | {"auto_map": auto_map}))
        (run / name).with_name("evil.py").write_text(f"import os\nos.mkdir({str(made)!r})\nclass Evil: pass\n")


def as_plugin(run: Path, made: Path) -> None:
    """Where a run keeps the plug-ins that it was made with."""
    (run / "plugins").mkdir()
    (run / "plugins" / "evil.py").write_text(f"import os\nos.mkdir({str(made)!r})\n")


LINES = {  # {run} is the folder, {out} a place to write to
    "train": ["train", "stdlib", *ROW, "--out", "{run}"],
    "train --from": ["train", "stdlib", *ROW, "--out", "{out}", "--from", "{run}"],
    "train --config": ["train", "--config", "{run}/config.yaml", "--out", "{out}"],
    "table": ["table", "lm", "--rows", "type2", "--columns", "stdlib", "--scale", "smoke", "--runs", "{runs}"],
    "evaluate": ["evaluate", "{run}", "--batches", "1"],
    "generate": ["generate", "{run}", "--tokens", "2"],
    "runs": ["runs", "--runs", "{runs}"],
    "report": ["report", "{run}", "--out", "{out}"],
    "explore": ["explore", "--run", "{run}", "--out", "{out}.html"],
    "export": ["export", "{run}", "--to", "{out}"],
    "export --remote-code": ["export", "{run}", "--to", "{out}", "--remote-code"],
}
NO_RUN = {"demo", "verify", "data", "bench", "doctor"}  # the verbs that read no run of anybody's


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    assert main(["train", "stdlib", *ROW, "--runs", str(runs)]) == 0
    return runs


def make_believe(run: Path) -> None:
    """Have the run go on where it is resumed, and its list of hashes be right."""
    (run / "results.json").unlink()
    progress = json.loads((run / STEP / "checkpoint.json").read_text())
    files = [path for path in (run / STEP).rglob("*") if path.is_file() and path.name != "checkpoint.json"]
    progress["sha256"] = {path.relative_to(run / STEP).as_posix(): hash_files(path) for path in files}
    (run / STEP / "checkpoint.json").write_text(json.dumps(progress))


def where_nothing_is_refused(run: Path, made: Path) -> None:
    """In each place that our verbs pass over without a word, so that none of these attacks hides another."""
    for plant in (beside_the_weights, as_code, as_plugin):
        plant(run, made)


@pytest.mark.parametrize("plant", [in_the_state, in_the_weights, in_the_yaml, where_nothing_is_refused])
def test_nothing_that_was_planted_in_a_run_is_run_by_any_verb(trained, tmp_path, monkeypatch, plant: Plant):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    monkeypatch.chdir(tmp_path)
    for name, words in LINES.items():
        runs = shutil.copytree(trained, tmp_path / name / "runs", symlinks=True)
        run = runs / "stdlib" / "smoke-fair" / "type2-seed0"
        plant(run, tmp_path / "made")
        make_believe(run)
        places = {"run": run, "runs": runs, "out": tmp_path / name / "out"}
        assert main([word.format(**places) for word in words]) in (0, 1, 2), name
        assert not (tmp_path / "made").exists(), name


def test_every_verb_that_reads_a_run_is_attacked():
    assert {name.split()[0] for name in LINES} | NO_RUN == set(VERBS)
