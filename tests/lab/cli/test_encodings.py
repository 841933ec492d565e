import json
from dataclasses import replace

import pytest
import torch

from lrpe.encodings.basis import Identity
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.family import FAMILY, encoding
from lrpe.encodings.unitary import Unitary
from lrpe.lab.cli import main
from lrpe.lab.cli.encodings import Verify
from lrpe.models import LrpeForCausalLM
from lrpe.theory import definition
from tests.models.tiny import tiny


class Drifting(Unitary):
    """Angles αs²: unitary at every position, and not relative."""

    def table(self, positions, dtype=torch.float32):
        return super().table(positions**2, dtype)

    def dense(self, *s):
        return super().dense(s[0] ** 2)


@pytest.fixture
def drifting(monkeypatch):
    monkeypatch.setattr(Verify, "build", lambda *_: Encoding(Identity(4), Drifting(4)))


def test_every_relative_encoding_holds_and_has_a_row(capsys):
    assert main(["verify", "--head-dim", "8", "--heads", "2"]) == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.splitlines() if line.endswith("holds")]
    assert names == [*FAMILY, "per"]
    assert "Householder × Orthogonal" in out
    assert "W_{t-s} = W_sᴴ W_t" in out
    assert out.count("Tested: every position from -2048 to 2048") == 1


def test_one_name_prints_the_whole_report(capsys):
    assert main(["verify", "fourier*unitary", "--head-dim", "4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Fourier × Unitary, head_dim 4")
    assert "Proposition 3.2" in out


def test_a_law_that_fails_is_exit_code_1(drifting, capsys):
    assert main(["verify", "rope", "type2", "--head-dim", "4"]) == 1
    assert capsys.readouterr().out.count("FAILS") == 2


def test_json_parses_and_says_what_failed(drifting, capsys):
    assert main(["verify", "rope", "--head-dim", "4", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is False
    (rope,) = found["encodings"]
    assert rope["name"] == "rope"
    failed = {law["equation"] for law in rope["laws"] if not law["holds"]}
    assert "W_{t-s} = W_sᴴ W_t" in failed
    assert "W_sᴴ W_s = I" not in failed


def test_an_infinite_residual_is_null_in_json(monkeypatch, capsys):
    def broken(subject, seed):
        report = verify(subject, seed=seed)
        return replace(report, laws=(replace(report.laws[0], residual=float("inf")), *report.laws[1:]))

    verify = definition.verify
    monkeypatch.setattr(definition, "verify", broken)
    assert main(["verify", "rope", "--head-dim", "4", "--json"]) == 1
    out = capsys.readouterr().out
    assert "Infinity" not in out
    assert json.loads(out)["encodings"][0]["laws"][0]["residual"] is None


def test_spe_is_not_relative(capsys):
    assert main(["verify", "spe", "rope", "--head-dim", "4", "--heads", "2"]) == 1
    spe, rope = capsys.readouterr().out.splitlines()[2:4]
    assert spe.endswith("FAILS")
    assert rope.endswith("holds")


@pytest.mark.parametrize(
    "argv", [["rop"], ["fourier*unitry"], ["rope", "--head-dim", "0"], ["cosformer", "--length", "0"]]
)
def test_a_mistake_is_one_sentence_and_exit_code_2(argv, capsys):
    assert main(["verify", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lrpe: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_an_unknown_name_brings_the_nearest(capsys):
    assert main(["verify", "rop"]) == 2
    assert "Did you mean 'rope'" in capsys.readouterr().err


def test_the_seed_of_permuteformer_as_published_stays_unless_another_is_asked_for():
    published, other = (Verify(seed=seed).build("per").state_dict()["matrix.cycles"] for seed in (0, 1))
    assert torch.equal(published, encoding("per", head_dim=64, heads=8).state_dict()["matrix.cycles"])
    assert not torch.equal(published, other)


def test_explore_writes_the_page_and_says_where(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["explore", "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"The page: {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_explore_offers_the_layers_of_every_run(tmp_path):
    for name in ("one", "two"):
        tiny(LrpeForCausalLM).float().save_pretrained(tmp_path / name)
    page = tmp_path / "page.html"
    assert main(["explore", "--out", str(page), "--run", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    assert '"title":"two"' in page.read_text(encoding="utf-8")


def test_a_run_that_is_not_there_is_a_sentence_and_no_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["explore", "-o", str(page), "--run", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("lrpe: A run is a folder")
    assert not page.exists()
