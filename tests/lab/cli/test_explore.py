from lrpe.lab.cli import main
from lrpe.models import LrpeForCausalLM
from tests.models.tiny import tiny


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
