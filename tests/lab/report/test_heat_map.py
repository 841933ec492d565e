import pytest

from lrpe.lab.report.heat_map import heat_map_spec, show_heat_map
from lrpe.lab.report.page import section, write_page
from lrpe.lab.report.table import FigureColumn
from tests.lab.report.browser import open_browser
from tests.lab.report.test_explorer import contrast

PIXEL = """
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function shown(colour) {
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const pixel = context.getImageData(0, 0, 1, 1).data;
  return "#" + [...pixel.slice(0, 3)].map((part) => part.toString(16).padStart(2, "0")).join("");
}
const colours = (cell) => [shown(getComputedStyle(cell).color), shown(getComputedStyle(cell).backgroundColor)];
"""  # what a colour, such as color-mix(...), is on the screen

ROWS = {"rope": "RoPE", "type2": "Type 2", "chance": "chance"}
COLUMNS = [
    FigureColumn("Parity", {"rope": 50.0, "type2": 75.0, "chance": 50.0}, 1, "higher"),
    FigureColumn("Recall", {"rope": 10.0, "type2": float("nan"), "chance": 25.0}, 1, "higher"),
]


def test_colours_go_from_chance_to_a_hundred_and_chance_is_no_row():
    values = heat_map_spec(ROWS, COLUMNS)["data"]["values"]
    assert [(each["row"], each["column"], each["share"], each["figure"]) for each in values] == [
        ("RoPE", "Parity", 0.0, "50.0"),
        ("Type 2", "Parity", 0.5, "75.0"),
        ("RoPE", "Recall", 0.0, "10.0"),
    ]


def test_a_page_has_the_map_as_a_table_with_the_share_of_every_cell(tmp_path):
    html = show_heat_map(ROWS, COLUMNS, tmp_path / "map")
    assert '<td style="--share: 0%" title="50.0">50.0</td>' in html
    assert '<td style="--share: 50%" title="75.0">75.0</td><td></td></tr>' in html
    assert "chance</th>" not in html


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_have_contrast_at_every_share(tmp_path, scheme):
    rows = {str(share): f"{share} %" for share in range(0, 101, 4)}
    column = FigureColumn("Parity", {row: float(row) for row in rows}, 1, "higher")
    parts = [show_heat_map(rows, [column], tmp_path / "map")]
    with open_browser() as browser:
        page = browser.new_page(color_scheme=scheme)
        page.goto(write_page(tmp_path / "index.html", "map", [section("map", parts)]).as_uri())
        page.add_script_tag(content=PIXEL)
        cells = page.locator(".heat td")
        assert cells.count() == len(rows)
        for letters, ground in cells.evaluate_all("cells => cells.map(colours)"):
            assert contrast(letters, ground) >= 4.5, (letters, ground)


def test_the_picture_is_saved(tmp_path):
    pytest.importorskip("vl_convert")
    show_heat_map(ROWS, COLUMNS, tmp_path / "map")
    assert (tmp_path / "map.svg").exists()
    assert (tmp_path / "map.png").exists()
    assert show_heat_map({"chance": "chance"}, COLUMNS, tmp_path / "none") == ""
