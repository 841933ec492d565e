"""No code of a folder runs, and nobody is asked whether it may."""

import ast
import json
from pathlib import Path

import pytest

from lrpe import LrpeError
from lrpe.models.saved import load_model

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "lrpe").rglob("*.py"), *(ROOT / "examples").glob("*.py")])


def automatic_loads(source: str) -> list[ast.Call]:
    """The calls of Auto....from_pretrained in a source."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call for call in calls if is_automatic(call.func)]


def is_automatic(called: ast.expr) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id=name), attr="from_pretrained"):
            return name.startswith("Auto")
    return False


def test_every_automatic_class_of_ours_refuses_code_without_asking():
    found = {path: automatic_loads(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert sum(map(len, found.values())) >= 3  # the search finds what it looks for
    for path, calls in found.items():
        for call in calls:
            trust = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}.get("trust_remote_code")
            assert trust == "False", f"{path.relative_to(ROOT)}:{call.lineno}"


def test_a_folder_that_names_code_of_its_own_is_refused_without_a_question(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto_map}))
    (tmp_path / "evil.py").write_text("raise RuntimeError('this must not run')")
    with pytest.raises(LrpeError, match="holds a model of type 'evil', not one of ours"):
        load_model(tmp_path)
