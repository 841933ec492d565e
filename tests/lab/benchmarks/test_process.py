import json
import sys

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import __main__ as measuring
from lrpe.lab.benchmarks import process

ECHO = """
import json, os, sys
asked = json.loads(sys.argv[-1])
result = {"asked": asked, "threads": os.environ["OMP_NUM_THREADS"], "malloc": os.environ["GLIBC_TUNABLES"]}
print("a library's chatter")
print(json.dumps({"result": result, "text": "Λ"}))
"""


def run_instead(monkeypatch, code: str) -> None:
    """Let the process that measures run this code."""
    run = process.subprocess.run
    monkeypatch.setattr(
        process.subprocess, "run", lambda command, **options: run([sys.executable, "-c", code, command[-1]], **options)
    )


def test_the_process_has_its_environment_before_it_starts(monkeypatch):
    run_instead(monkeypatch, ECHO)
    result, text = process.measure_apart("encoding", threads=3, quick=True)
    asked = {"benchmark": "encoding", "threads": 3, "device": "cpu", "options": {"quick": True}, "plugins": []}
    assert result["asked"] == asked
    assert result["threads"] == "3"
    assert "mmap_threshold" in result["malloc"]
    assert text == "Λ"


def test_an_error_there_is_an_error_here(monkeypatch):
    run_instead(monkeypatch, """print('{"error": "rope and made up differ"}')""")
    with pytest.raises(LrpeError, match="rope and made up differ"):
        process.measure_apart("encoding")


def test_a_process_that_dies_is_reported(monkeypatch):
    run_instead(monkeypatch, "import sys; sys.exit(3)")
    with pytest.raises(LrpeError, match="ended with code 3"):
        process.measure_apart("encoding")


def test_a_package_that_is_missing_there_is_missing_here(monkeypatch):
    run_instead(monkeypatch, """print('{"missing": "transformers"}')""")
    with pytest.raises(ModuleNotFoundError) as caught:
        process.measure_apart("train")
    assert caught.value.name == "transformers"


@pytest.mark.parametrize(
    ("raised", "reply"),
    [
        (LrpeError("rope and made up differ"), {"error": "rope and made up differ"}),
        (ModuleNotFoundError("no such module", name="transformers"), {"missing": "transformers"}),
    ],
)
def test_the_measuring_side_answers_with_the_error(monkeypatch, capsys, raised, reply):
    def refuse():
        raise raised

    monkeypatch.setattr(measuring, "pin", lambda threads: None)
    monkeypatch.setattr("lrpe.lab.benchmarks.encoding.measure", refuse)
    asked = {"benchmark": "encoding", "threads": 1, "device": "cpu", "options": {}, "plugins": []}
    measuring.main(json.dumps(asked))
    assert json.loads(capsys.readouterr().out) == reply
