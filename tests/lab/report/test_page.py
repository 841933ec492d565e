"""Text stays text, whatever it holds, in every place of a page where text from elsewhere can be."""

import json

import pytest

from lrpe.lab.report.page import (
    bullets,
    code_in_script,
    facts,
    fill,
    folded,
    heading,
    json_in_script,
    paragraph,
    picture,
    preformatted,
    provenance,
    section,
    write_page,
)
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.picture import file_name
from lrpe.lab.report.table import FigureColumn
from lrpe.lab.report.training import curves_spec
from tests.lab.report.browser import open_browser

NASTY = "<!--<script>window.harmed = 1</ScRiPt><img src=x onerror='window.harmed = 1'>\u2028&amp;\"'`"
STAMP = {"date": NASTY, "commit": None, "dirty": None, "machine": NASTY, "system": "", "python": "", "versions": {}}


def test_json_in_a_script_means_the_same_and_holds_nothing_that_html_or_javascript_could_read():
    written = json_in_script({NASTY: [1, NASTY]})
    assert json.loads(written) == {NASTY: [1, NASTY]}
    assert not set(written) & set("<>&\u2028\u2029")


@pytest.mark.parametrize("ending", ["</script", "</SCRIPT", "<!--"])
def test_code_in_a_script_cannot_end_or_hide_it(ending):
    assert ending not in code_in_script(f"const a = '{ending}>'")
    assert code_in_script("a < b") == "a < b"


def test_a_template_is_filled_in_one_pass():
    assert fill("A and B", {"A": "B", "B": "A"}) == "B and A"


def test_a_file_name_stays_in_its_folder_and_fits_its_disk():
    assert file_name("../../etc", "a b", "x*y") == "etc-a-b-x-times-y"
    assert len(file_name("a" * 300, "b" * 300)) < 130


def test_a_page_of_nasty_names_shows_them_and_runs_none(tmp_path):
    points = {"base": [[(1, 2.0), (2, 1.0)]]}
    drawn = picture(curves_spec(points, {"base": NASTY}, NASTY), tmp_path / "curves", NASTY)
    table = as_html({"base": NASTY}, [FigureColumn(NASTY, {"base": 1.0})], [])
    texts = [heading(NASTY), paragraph(NASTY), bullets([NASTY]), facts({NASTY: NASTY}), provenance(STAMP, NASTY)]
    parts = [section(NASTY, [*texts, table, drawn, folded(NASTY, preformatted(NASTY))])]
    file = write_page(tmp_path / "index.html", NASTY, parts)
    with open_browser() as browser:
        page = browser.new_page()
        page.goto(file.as_uri())
        assert page.evaluate("window.harmed") is None
        assert page.title() == NASTY
        assert page.locator("main script, main img").count() == 0
        for place in (
            "h1",
            "section > h2",
            "section > p",
            "li",
            "dt",
            "dd",
            "tbody th",
            "figcaption",
            "summary",
            "pre",
        ):
            assert page.locator(place).first.text_content() == NASTY, place
        assert page.locator("svg text").get_by_text("window.harmed").count() >= 1
