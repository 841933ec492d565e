import json
import sys
from pathlib import Path

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.report.benchmark import mark_of, prepare_plot, save_plot, speed_marks

ABOUT = {"quick": True, "stamp": {"machine": "a machine", "date": "today"}, "settings": {"threads": 1}}
LINE = {"row": "ours ÷ theirs", "at": "N = 8", "goal": 0.5, "verdict": "pass", "figure": 0.4, "low": 0.3, "high": 0.6}
ATTENTION = {
    "benchmark": "attention",
    "lines": [
        LINE,
        LINE | {"at": "N = 16", "figure": 0.6, "verdict": "short", "low": None, "high": None},
        LINE | {"row": "ours ÷ absent", "figure": None, "verdict": "missing"},
        LINE | {"row": "nobody's goal", "goal": None, "verdict": ""},
    ],
    **ABOUT,
}
POINTS = [{"side": side, "length": 2**n, "seconds": 1.0, "bytes": 2**n} for side in ("us", "them") for n in (3, 4)]
POINTS.append({"side": "us", "length": 32, "seconds": 2.0, "bytes": None})
LENGTH = {
    "benchmark": "length",
    "points": POINTS,
    "lines": [],
    "exponents": {"us": 1.0, "them": 2.0},
    "memory_exponents": {},
    **ABOUT,
}


SPEED = {"ratio": 0.9, "low": 0.8, "high": 1.0, "seconds": 0.1}
TRAIN = {
    "benchmark": "train",
    "rows": [{"title": "Type 1", "speed": SPEED, "paper": 0.82}, {"title": "RoPE", "speed": SPEED, "paper": 0.86}],
    "lines": [
        LINE | {"goal": 0.93, "better": "higher"},
        LINE | {"goal": None, "better": "lower"},
        LINE | {"goal": None, "better": "higher"},
        LINE | {"goal": None, "better": "lower"},
    ],
    **ABOUT,
}


@pytest.mark.parametrize(
    "result",
    [ATTENTION, ATTENTION | {"benchmark": "encoding"}, LENGTH, TRAIN],
    ids=["attention", "encoding", "length", "train"],
)
def test_each_kind_of_file_is_what_its_name_says(tmp_path, result):
    files = [tmp_path / f"plot{suffix}" for suffix in (".png", ".svg", ".html")]
    for file in files:
        save_plot(file, result)
    png, svg, html = (file.read_bytes() for file in files)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"IEND" in png[-12:]
    assert svg.startswith(b"<svg")
    assert b"<script src" not in html  # it holds all that it needs


def test_the_picture_of_the_table_names_every_goal(tmp_path):
    file = tmp_path / "plot.svg"
    save_plot(file, ATTENTION)
    svg = file.read_text(encoding="utf-8")
    for words in ("ours ÷ theirs, N = 16", "0.40, goal 0.5", "ours ÷ absent, N = 8", "missing", "a machine"):
        assert words in svg
    assert "nobody's goal" not in svg


def test_a_page_begins_with_the_goals_that_are_met_and_names_the_others(tmp_path):
    save_plot(tmp_path / "plot.html", ATTENTION)
    page = (tmp_path / "plot.html").read_text(encoding="utf-8")
    summary = page.split("<h2>Summary</h2>")[1].partition("</section>")[0]
    for words in ("1 of 3 goals are met.", "ours ÷ theirs, N = 16: missed.", "ours ÷ absent, N = 8: not measured."):
        assert f"<li>{words}</li>" in summary
    assert "nobody" not in summary


def test_the_picture_of_lengths_tells_its_exponents(tmp_path):
    file = tmp_path / "plot.svg"
    save_plot(file, LENGTH)
    svg = file.read_text(encoding="utf-8")
    assert "time: us n^1.00, them n^2.00" in svg
    assert "memory: unknown" in svg


def test_the_picture_of_training_has_our_speeds_the_papers_and_the_goals():
    marks = [(mark["name"], mark["kind"], mark["speed"]) for mark in speed_marks(TRAIN)]
    assert marks == [
        ("Type 1", "ours", 0.9),
        ("Type 1", "paper", 0.82),
        ("Type 1", "goal", 0.93),
        ("RoPE", "ours", 0.9),
        ("RoPE", "paper", 0.86),
    ]


def test_a_mark_stands_at_its_figure_over_its_goal():
    mark = mark_of(LINE)
    assert (mark["relative"], mark["low"], mark["high"]) == pytest.approx((0.8, 0.6, 1.2))
    assert json.dumps(mark)


def test_where_more_is_better_a_goal_is_met_left_of_the_line_too():
    line = LINE | {"better": "higher", "figure": 0.8, "low": 0.7, "high": 1.0}
    assert mark_of(line)["relative"] == pytest.approx(0.5 / 0.8)
    assert (mark_of(line)["low"], mark_of(line)["high"]) == pytest.approx((0.5 / 1.0, 0.5 / 0.7))


@pytest.mark.parametrize("name", ["plot.pdf", "plot"])
def test_another_kind_of_file_is_refused(name):
    with pytest.raises(LrpeError, match=r"\.png, \.svg, \.html"):
        prepare_plot(Path(name))


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(LrpeError, match=r"pip install 'lrpe\[report\]'"):
        prepare_plot(Path("plot.png"))
