"""Pages of runs as a reader sees them, in Chromium: on a desk and on a phone, in light and dark."""

import json
from dataclasses import replace

import pytest
import yaml

from lrpe.lab.experiments.columns import wikitext103
from lrpe.lab.experiments.experiment import to_dict
from lrpe.lab.experiments.scale import find_scale
from lrpe.lab.report.page import section, write_page
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.picture import LOOKS
from lrpe.lab.report.runs import report_runs
from lrpe.lab.report.table import FigureColumn
from tests.lab.report.browser import open_browser
from tests.lab.report.test_explorer import contrast

ENVIRONMENT = {"metric": "perplexity", "better": "lower", "data": {"name": "stdlib"}}


def make_run(folder, method="type2", points=(), seed=0, variant="", results=None):
    """Write the folder of a run as training leaves it, without its weights."""
    experiment = find_scale("smoke")(wikitext103(method)).with_data({}).with_seed(seed)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(replace(experiment, variant=variant))))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    lines = [{"update": update, "seconds": 0.5, "validation perplexity": value} for update, value in points]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if results:
        (folder / "results.json").write_text(json.dumps(results))
    return folder


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A page of a finished run, one under way, and one that has not been validated yet."""
    runs = tmp_path_factory.mktemp("runs")
    scores = {"validation": {"perplexity": 30.0}, "test": {"perplexity": 31.0}}
    folders = [
        make_run(runs / "a", "base", [(1, 40.0), (2, 35.0), (3, 30.0)], results=scores),
        make_run(runs / "b", "softmax", [(1, 50.0), (2, 45.0)]),
        make_run(runs / "c", "recommended"),
    ]
    return report_runs(folders, runs / "page", "lrpe report runs")


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


def test_a_run_without_a_validation_says_so_and_spoils_nothing(file):
    text = file.read_text(encoding="utf-8")
    assert "recommended, seed 0: no validation yet." in text
    assert "softmax + RoPE, seed 0: not finished; validation perplexity 45 at update 2." in text
    assert "<td>30.000</td>" in text
    assert text.count("<noscript><figure>") == 1  # the curves of the other two


def test_the_summary_counts_finished_runs_and_compares_the_rows(tmp_path):
    scores = {"base": (31.0, 32.0, 33.0), "type2": (30.0, 31.1, 31.9)}
    folders = [
        make_run(tmp_path / f"{row}{seed}", row, [(1, 40.0)], seed, results={"validation": {"perplexity": figure}})
        for row, figures in scores.items()
        for seed, figure in enumerate(figures)
    ]
    page = report_runs([*folders, make_run(tmp_path / "c", "rope")], tmp_path / "page", "").read_text(encoding="utf-8")
    assert "wikitext103 on stdlib, smoke, fair: 6 of 7 runs finished. validation perplexity: Type 2 (31.000) is" in page
    assert page.index("<h2>Summary</h2>") < page.index("<h2>wikitext103 on stdlib, smoke, fair</h2>")
    assert "† differs from Base (paired t-test over 3 seeds" in page


def test_a_group_of_which_nothing_is_validated_has_no_empty_picture(tmp_path):
    page = report_runs([make_run(tmp_path / "run")], tmp_path / "page", "").read_text(encoding="utf-8")
    assert "Type 2, seed 0: no validation yet." in page
    assert "<figure" not in page


def test_a_run_whose_environment_is_missing_is_shown(tmp_path):
    (make_run(tmp_path / "run") / "environment.json").unlink()
    assert "no validation yet" in report_runs([tmp_path / "run"], tmp_path / "page", "").read_text(encoding="utf-8")


def test_a_stand_in_is_called_by_its_name(file):
    text = file.read_text(encoding="utf-8")
    assert "<h2>wikitext103 on stdlib, smoke, fair</h2>" in text
    assert "It replaces wikitext103." in text


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_window_and_its_pictures_are_seen(browser, file, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown = page.locator(".chart > svg").locator("visible=true")
    assert shown.count() == 1
    letters = shown.locator("text").evaluate_all("texts => texts.map((text) => text.getBoundingClientRect().height)")
    assert min(letters) >= 10
    card = hexadecimal(page.locator("section").first.evaluate("e => getComputedStyle(e).backgroundColor"))
    for text in shown.locator("text").all():
        assert contrast(hexadecimal(text.evaluate("e => getComputedStyle(e).fill")), card) >= 4.5
    for line in shown.locator("path.line").all():
        assert contrast(hexadecimal(line.evaluate("e => getComputedStyle(e).stroke")), card) >= 3
    page.close()


def hexadecimal(colour):
    """#rrggbb of rgb(r, g, b)."""
    return "#" + "".join(f"{int(part):02x}" for part in colour.removeprefix("rgb(").rstrip(")").split(","))


def test_a_wide_table_is_whole_on_a_desk_and_scrolls_in_its_box_on_a_phone(browser, tmp_path):
    tasks = ("Text (stdlib-packages)", "ListOps (listops)", "Retrieval (stdlib-pairs)", "Pathfinder (pathfinder)")
    columns = [
        FigureColumn(task, {"base": 75.0}, paper={"base": 64.81}) for task in (*tasks, "Image (digits-sequence)", "AVG")
    ]
    file = write_page(tmp_path / "index.html", "wide", [section("fair", [as_html({"base": "Base"}, columns, [])])])
    for width, whole in ((1400, True), (390, False)):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator(".table").evaluate("box => box.scrollWidth <= box.clientWidth") == whole
        page.close()


def test_every_method_is_seen_on_a_dark_page():
    assert all(contrast(look.dark or look.colour, "#1b1d21") >= 3 for look in LOOKS.values())


def test_updates_are_whole_numbers_beside_their_axis(browser, file):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(file.as_uri())
    assert page.locator(".chart text.tick.x").all_text_contents() == ["1", "2", "3"]
    page.close()


def test_facts_of_the_machine_have_a_line_each(browser, file):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(file.as_uri())
    tops = page.locator(".facts dd").evaluate_all("found => found.map((dd) => dd.getBoundingClientRect().top)")
    assert len(tops) == 5
    assert tops == sorted(set(tops))
    page.close()
