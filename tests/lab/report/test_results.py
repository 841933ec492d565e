"""The report of a trained table, in its files and as a reader sees its page in Chromium."""

import json
from pathlib import Path

import pytest

from lrpe.lab.experiments.planning import plan
from lrpe.lab.report.results import report_table
from tests.lab.report.browser import SIZES, open_browser
from tests.lab.report.test_runs import ENVIRONMENT, contrast, hexadecimal

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
SCORES = {"base": (30.0, 33.0, 36.0), "rope": (29.0, 33.5, 36.1), "type2": (20.0, 23.1, 25.9)}


def write_run(folder, end):
    """Write what the report reads of a run that ended at a perplexity."""
    folder.mkdir(parents=True)
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    lines = [{"update": k, "seconds": 0.5, "validation perplexity": end + 40 / k} for k in (10, 20, 40)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "results.json").write_text(json.dumps({split: {"perplexity": end} for split in ("validation", "test")}))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of three rows over three seeds: its folder and its text."""
    folder = tmp_path_factory.mktemp("table")
    planned = plan("lm", rows=tuple(SCORES), columns=("stdlib",), seeds=(0, 1, 2), scale="smoke", runs=folder)
    for experiment in planned.experiments:
        write_run(folder / experiment.name, SCORES[experiment.method][experiment.training.seed])
    return folder / "out", report_table(planned, folder / "out", "lrpe table lm")[0]


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture
def page(browser, report):
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto((report[0] / "index.html").as_uri())
    yield opened
    opened.close()


def test_the_text_marks_what_differs_explains_the_test_and_ends_with_what_the_table_shows(report):
    text = report[1]
    assert "22.99 " not in text
    assert "23.00 ± 2.95 * †‡" in text
    assert "32.87 ± 3.59" in text
    assert "† differs from Base, ‡ differs from RoPE (paired t-test over 3 seeds" in text
    assert "Significance: Student's paired t-test, two-sided, against Base (†) and RoPE (‡)." in text
    last = text.split("What the table shows\n")[1].splitlines()
    assert last[0].startswith("Python's library validation: Type 2 (23.00) is lowest, followed by RoPE (32.87)")
    assert "over 3 seeds the difference is significant" in last[1]


def test_the_data_have_every_seed_and_every_test(report):
    column = json.loads((report[0] / "table.json").read_text())["settings"]["fair"]["columns"][0]
    assert column["seeds"]["type2"] == {"0": 20.0, "1": 23.1, "2": 25.9}
    assert column["tests"]["rope"]["type2"]["difference"] == pytest.approx(23 - 98.6 / 3)
    assert set(column["tests"]["base"]) == {"rope", "type2"}


def test_rows_are_tested_against_the_named_row_in_text_page_and_data(report):
    runs = report[0].parent
    planned = plan(
        "lm", rows=tuple(SCORES), columns=("stdlib",), seeds=(0, 1, 2), scale="smoke", runs=runs, against=["rope"]
    )
    text, page = report_table(planned, runs / "against", "lrpe table lm --against rope")
    assert "against RoPE (†)." in text
    assert "23.00 ± 2.95 * †" in text
    assert "Differences from RoPE, with intervals and p-values" in page.read_text()
    column = json.loads((page.parent / "table.json").read_text())["settings"]["fair"]["columns"][0]
    assert set(column["tests"]) == {"rope"}


@pytest.mark.parametrize("kind", SIZES)
def test_the_page_needs_no_network_fits_and_is_kept_as_a_picture(browser, report, kind):
    width, height = SIZES[kind]
    scheme = "dark" if kind == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((report[0] / "index.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("section > h2").first.text_content() == "Summary"
    assert page.locator(".chart > svg .curve").count() == len(SCORES)
    card = hexadecimal(page.locator("section").first.evaluate("e => getComputedStyle(e).backgroundColor"))
    for dot in page.locator(".interval circle").all():
        assert contrast(hexadecimal(dot.evaluate("e => getComputedStyle(e).fill")), card) >= 3
    assert (said, asked) == ([], [(report[0] / "index.html").as_uri()])
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"table-{kind}.png", full_page=True)
    page.close()


def test_pointing_at_a_curve_says_row_update_and_value(page):
    page.locator(".chart .curve[data-row='2'] .sign").last.hover()
    assert page.locator(".chart output").text_content() == "Type 2, update 40: 24 (21 to 26.9 over 3 seeds)"
    assert page.locator(".chart .curve.chosen").get_attribute("data-row") == "2"
    page.mouse.move(0, 0)
    assert page.locator(".chart output").text_content().startswith("Point at a curve")


def test_a_tap_names_a_point_and_the_name_stays(browser, report):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto((report[0] / "index.html").as_uri())
    page.locator(".chart .curve[data-row='2'] .sign").first.tap()
    assert page.locator(".chart output").text_content() == "Type 2, update 10: 27 (24 to 29.9 over 3 seeds)"
    context.close()


def test_the_arrow_keys_walk_from_point_to_point_and_from_row_to_row(page):
    chart, output = page.locator(".chart > svg"), page.locator(".chart output")
    chart.focus()
    seen = []
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        chart.press(key)
        seen.append(output.text_content().partition(":")[0])
    start = "Base, update 40"
    assert seen == [start, *(f"{row}, update 20" for row in ("Base", "RoPE", "Type 2", "Type 2", "RoPE"))]
    chart.press("Escape")
    assert page.locator(".chart .named").count() == 0


def test_a_button_of_the_legend_hides_its_row_by_mouse_and_key_and_the_scale_follows(page):
    button, labels = page.get_by_role("button", name="Type 2"), page.locator(".chart .tick.y")
    before = labels.all_text_contents()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(".chart .curve").count() == len(SCORES) - 1
    assert labels.all_text_contents() != before
    button.press("Enter")
    assert page.locator(".chart .curve").count() == len(SCORES)
    assert labels.all_text_contents() == before


def test_a_chart_of_which_every_row_is_hidden_says_so(page):
    for button in page.locator(".chart button").all():
        button.click()
    assert page.locator(".chart output").text_content() == "Every row is hidden."
    assert page.locator(".chart .curve").count() == 0


def test_a_page_without_javascript_shows_the_picture(browser, report):
    pytest.importorskip("vl_convert")
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto((report[0] / "index.html").as_uri())
    assert page.locator("noscript figure svg").locator("visible=true").count() == 1
    assert page.locator(".chart").locator("visible=true").count() == 0
    page.close()
