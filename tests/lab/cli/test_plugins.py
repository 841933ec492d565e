"""``--plugin FILE``: encodings of one's own in every verb, and runs that keep their plug-ins without running them."""

from pathlib import Path

import pytest

from lrpe.lab.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_registries")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_encodings.py"
TRAIN = ("train", "stdlib", "--scale", "smoke", "--method")


def lrpe(*words, plugin=EXAMPLE):
    return main([*map(str, words), "--plugin", str(plugin)])


def test_a_name_of_ones_own_is_known_only_with_its_plugin(tmp_path, capsys):
    assert main(["verify", "flip"]) == 2
    assert "pass --plugin FILE" in capsys.readouterr().err
    assert lrpe("verify", "flip") == 0
    assert main(["verify", "flip", "--plugin"]) == 2
    assert "--plugin needs a file" in capsys.readouterr().err


def test_rows_of_a_plugin_are_trained_in_processes_of_their_own(tmp_path, capsys):
    table = ("table", "lm", "--columns", "stdlib", "--scale", "smoke", "--runs", tmp_path, "--processes", 2)
    assert lrpe(*table, "--rows", "flip,unhurried") == 0
    out = capsys.readouterr().out
    assert "\nflip " in out
    assert "\nunhurried " in out


def test_a_run_keeps_its_plugin_and_resumes_with_no_other(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text(EXAMPLE.read_text())
    run = tmp_path / "run"
    assert lrpe(*TRAIN, "flip", "--out", run, plugin=mine) == 0
    assert (run / "plugins" / "mine.py").read_text() == mine.read_text()
    mine.write_text(mine.read_text() + "\n# another version\n")
    assert lrpe(*TRAIN, "flip", "--out", run, plugin=mine) == 0
    assert "another version of the plug-in" in capsys.readouterr().err
    (run / "results.json").unlink()
    assert lrpe(*TRAIN, "flip", "--out", run, plugin=mine) == 2
    assert f"pass --plugin {run}/plugins/mine.py" in capsys.readouterr().err
