import pytest

from lrpe.lab.report.heat_map import heat_map_spec, show_heat_map
from lrpe.lab.report.table import FigureColumn

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


def test_the_picture_shows_every_title_and_is_saved(tmp_path):
    pytest.importorskip("vl_convert")
    html = show_heat_map(ROWS, COLUMNS, tmp_path / "map")
    assert all(word in html for word in ("RoPE", "Type 2", "Parity", "75.0"))
    assert (tmp_path / "map.svg").exists()
    assert (tmp_path / "map.png").exists()
    assert show_heat_map({"chance": "chance"}, COLUMNS, tmp_path / "none") == ""
