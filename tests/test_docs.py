"""What README and docs say is so: their code runs, the tests and files they name exist."""

import re
import shlex
from pathlib import Path

import pytest

from lrpe.encodings.family import BASELINES, FAMILY, GRIDS
from lrpe.lab.report.explorer.page import page_data

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.usefixtures("own_registries")  # for what a block may register
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs(page, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where a block may write
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_lrpe_command_can_be_typed(page):
    from lrpe.lab.cli.command_line import parse
    from lrpe.lab.cli.words import take_plugins

    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    for line in lines:
        words, _ = take_plugins(shlex.split(line, comments=True))
        if words[:1] == ["torchrun"]:
            words = words[words.index("lrpe") :]
        if words and words[0] == "lrpe":
            assert callable(parse(words[1:]).run), line


def test_decoding_as_the_readme_shows_it_keeps_no_graph(capsys):
    names: dict = {}
    exec(blocks(ROOT / "README.md", "python")[0], names)
    assert all(tensor.is_inference() for tensor in (names["token"], *names["state"][:3]))


def test_every_test_and_file_named_in_the_mathematics_exists():
    text = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8")
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 20
    assert named <= written, named - written
    files = set(re.findall(r"`((?:encodings|theory|attention)/\w+\.py)`", text))
    assert all((ROOT / "lrpe" / file).exists() for file in files)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_file_and_every_name_in_it_exists(page):
    text = page.read_text(encoding="utf-8")
    missing = [file for file in re.findall(r"`((?:lrpe|tests|examples)/\S+\.\w+)`", text) if not (ROOT / file).exists()]
    assert not missing
    named = re.findall(r"`(\w+)`\s+(?:of|in)\s+`((?:lrpe|tests)/\S+\.py)`", text)
    absent = [(name, file) for name, file in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8"))]
    assert not absent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_architecture_names_every_package_and_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for pattern in ("lrpe/*/__init__.py", "lrpe/lab/*/__init__.py")
        for path in ROOT.glob(pattern)
    }
    assert set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)) == packages - {"lrpe.lab"}
    order = text[text.index("## A reading order") :]
    folder, missing = Path(), []
    for name in re.findall(r"`([\w/]+\.py)`", order):
        folder = Path(name).parent if "/" in name else folder
        missing += [name] if not (ROOT / folder / Path(name).name).is_file() else []
    assert missing == []


def test_the_table_of_the_family_has_every_name_and_views_that_the_explorer_knows():
    link = r'<a href="explorer-page\.html#left=([\w-]+)">view</a>'
    rows = re.findall(rf"^\| `([\w-]+)` \|.*\| (?:{link}|[^|–]{{8,}}) \|$", (ROOT / "docs/family.md").read_text(), re.M)
    assert {name for name, _ in rows} == {*FAMILY, *GRIDS, *BASELINES}
    assert all(name == view for name, view in rows if view)
    assert {view for _, view in rows if view} == set(page_data([])["methods"])  # the others say why they have none


# Pages that gather the others, and one whose data are the library of the Python that it names.
GATHERED, OF_THE_LIBRARY = ("index.md", "paper.md"), ("normalizers-2026-11-15.md",)
COMMIT, DATE = r"\bcommits? [0-9a-f]{7,40}", r"(?<![-\w])20\d\d-\d\d-\d\d|\d+ November 20\d\d"
MACHINE = r"AMD|Intel|ARM|Apple|NVIDIA"
RESULTS = [page for page in sorted((ROOT / "docs/results").glob("*.md")) if page.name not in GATHERED]


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_every_page_of_results_says_how_to_make_it_again(page):
    assert blocks(page, "sh"), "the command"
    text = re.sub(
        r"^```.*?^```|\([^()]*\)", "", page.read_text(encoding="utf-8"), flags=re.S | re.M
    )  # links have dates
    for fact in (COMMIT, r"\bseeds? \d|one seed|two seeds|three seeds", DATE, MACHINE, r"torch 2\.\d+"):
        assert re.search(fact, text, re.IGNORECASE), fact
    assert page.name in OF_THE_LIBRARY or re.search(
        r"content hash(es)?\b[^`]*`[0-9a-f]{16}`", page.read_text("utf-8"), re.I
    )


@pytest.mark.parametrize("page", sorted((ROOT / "docs/results").glob("*.txt")), ids=lambda page: page.name)
def test_every_recorded_measurement_says_how_to_make_it_again(page):
    text, index = (file.read_text(encoding="utf-8") for file in (page, page.with_name("index.md")))
    (row,) = (line for line in index.splitlines() if f"]({page.name})" in line)
    assert re.search(r"`lrpe (bench|table) \w+", row)
    for fact in (COMMIT, DATE, MACHINE, r"torch 2\.\d+"):
        assert re.search(fact, text), fact


def test_the_index_of_results_names_every_one():
    index = (ROOT / "docs/results/index.md").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs/results").glob("*.[mt][dx]*") if f"]({page.name}" not in index]
    assert missing == ["index.md"]
