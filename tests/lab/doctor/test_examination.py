"""``lrpe doctor`` on installations that lack something, or that have something broken."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

import lrpe
from lrpe.attention.engines.library import find_library, load_library
from lrpe.lab.cli import main
from lrpe.lab.doctor import examination as doctor
from lrpe.lab.doctor import tiny_sums

ROOT = Path(lrpe.__file__).parents[1]
# All that the core and the command line need, directly or not: torch's requirements, and jsonargparse's.
NEEDED = ("torch", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock")
NEEDED += ("jsonargparse", "docstring_parser", "typeshed_client", "pyyaml", "lrpe")

needs_native = pytest.mark.skipif(find_library() is None, reason="the native engine is not built")


@pytest.fixture
def fresh_library(monkeypatch):
    """The library is looked for again, and again after the test."""
    monkeypatch.delenv("LRPE_NATIVE", raising=False)
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def examine(capsys) -> tuple[int, dict[str, dict]]:
    """Run ``lrpe doctor --json``; return the exit code and the findings by name."""
    code = main(["doctor", "--json"])
    return code, by_name(capsys.readouterr().out)


def by_name(printed: str) -> dict[str, dict]:
    sections = json.loads(printed)["sections"]
    return {finding["name"]: finding for findings in sections.values() for finding in findings}


@pytest.mark.slow
def test_with_the_core_and_the_command_line_alone_it_names_every_extra_and_its_command(tmp_path):
    light = tmp_path / "packages"
    light.mkdir()
    for name in NEEDED:
        for entry in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (light / entry).symlink_to(distribution(name).locate_file(entry))
    variables = {"PYTHONPATH": os.pathsep.join([str(light), str(ROOT)]), "HOME": str(tmp_path), "LRPE_CACHE": ""}
    # -S: without the packages of this environment
    command = [sys.executable, "-S", "-m", "lrpe", "doctor", "--json"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = by_name(done.stdout)
    assert found["cli"]["text"] == "complete"
    assert found["transformers"]["text"] == "not installed"
    assert found["causal"]["text"].startswith("computed by ")
    assert found["models"]["text"] == "lacks safetensors, transformers"
    for extra in ("models", "data", "train", "bench", "report"):
        assert re.fullmatch(rf"pip install '.*\[{extra}\]'", found[extra]["remedy"])


def test_a_native_library_that_was_not_built_is_missing_and_not_broken(tmp_path, monkeypatch, capsys, fresh_library):
    monkeypatch.setattr("lrpe.native.build.HERE", tmp_path)
    code, found = examine(capsys)
    assert code == 0
    assert not found["native"]["broken"]
    if "was not built" in found["native"]["text"]:  # else there is none for this processor
        assert found["native"]["remedy"].endswith("python -m lrpe.native.build")
    assert found["causal"]["text"].startswith("computed by torch; native: ")


@needs_native
def test_a_native_library_that_cannot_be_loaded_is_broken(tmp_path, monkeypatch, capsys, fresh_library):
    (tmp_path / find_library().name).write_text("not a library")
    monkeypatch.setattr("lrpe.native.build.HERE", tmp_path)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"native +BROKEN: .* could not be loaded", printed)
    assert "Broken: native." in printed


def test_a_sum_that_is_wrong_or_fails_is_broken(monkeypatch, capsys):
    right = tiny_sums.linear_attention

    def wrong(q, *arguments, **options):
        if options.get("summation") == "bidirectional":
            raise RuntimeError("made to fail")
        out, state = right(q, *arguments, **options)
        return (1.01 * out if options.get("state") is not None else out), state

    monkeypatch.setattr(tiny_sums, "linear_attention", wrong)
    code, found = examine(capsys)
    assert code == 1
    assert not found["causal"]["broken"]
    assert found["bidirectional"]["text"] == "RuntimeError: made to fail"
    assert found["decoding"]["text"].endswith("but the result is wrong")


def test_caches_are_measured_and_one_that_cannot_be_written_is_broken(tmp_path, monkeypatch, capsys):
    (tmp_path / "lrpe" / "words").mkdir(parents=True)
    (tmp_path / "lrpe" / "words" / "a").write_bytes(b"0" * 2_000_000)
    (tmp_path / "lrpe" / "link").symlink_to("words")
    (tmp_path / "file").touch()
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "lrpe"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "absent" / "hub"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "file" / "datasets"))
    code, found = examine(capsys)
    assert code == 1
    assert found["prepared data"]["text"] == f"{tmp_path / 'lrpe'}: 2.0 MB in 1 file, writable"
    assert found["hub, files"]["text"].endswith("empty, made when it is needed, writable")
    assert found["hub, datasets"]["broken"]
    assert found["hub, datasets"]["remedy"].startswith("export HF_HOME=")


def test_an_unexpected_error_ends_its_section_alone(monkeypatch):
    monkeypatch.setattr(doctor, "find_lacking", lambda: 1 / 0)
    found = doctor.examine()
    assert [finding.text for finding in found.sections["Extras"]] == ["ZeroDivisionError: division by zero"]
    assert found.sections["Caches"]
    assert not found.sound


def test_without_torch_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(doctor, "_has_torch", lambda: False)
    found = doctor.examine()
    assert "pip install 'torch>=2.6'" in str(found)
    assert [finding.text for finding in found.sections["Engines"]] == ["none without torch"]
