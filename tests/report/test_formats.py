from lrpe.report.formats import as_html, as_latex, as_markdown, as_text
from lrpe.report.table import Column, as_data

ROWS = {"base": "Base", "type1": "Type 1", "type2": "Type 2", "count": "counted & sure"}
PERPLEXITY = Column(
    "val", {"base": 34.0, "type1": 31.903, "type2": 31.899, "count": 20.0}, 2, "lower", {"type2": 0.1}, {"type2": 31.95}
)
ACCURACY = Column("acc", {"base": 70.0, "type2": 80.0}, 1, "higher")
RANKED = ["base", "type1", "type2"]


def test_the_best_of_the_ranked_rows_is_marked_and_what_prints_alike_ranks_alike():
    assert [PERPLEXITY.rank(row, RANKED) for row in ROWS] == [1, 0, 0, None]
    assert [ACCURACY.rank(row, RANKED) for row in ROWS] == [1, None, 0, None]
    text = as_text(ROWS, [PERPLEXITY, ACCURACY], RANKED)
    assert "31.90 ± 0.10 *  31.95" in text
    assert "34.00 ·" in text
    assert text.splitlines()[0].split() == ["val", "↓", "paper", "acc", "↑"]


def test_markdown_is_a_table_with_bold_and_underlined_cells():
    lines = as_markdown(ROWS, [PERPLEXITY], RANKED).splitlines()
    assert lines[0] == "|  | val ↓ | paper |"
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[2] == "| Base | <u>34.00</u> |  |"
    assert lines[4] == "| Type 2 | **31.90 ± 0.10** | 31.95 |"


def test_latex_escapes_what_latex_reads_otherwise():
    text = as_latex(ROWS, [PERPLEXITY], RANKED)
    assert r"Type 2 & \textbf{31.90 $\pm$ 0.10} & 31.95 \\" in text
    assert r"counted \& sure" in text
    assert r"val $\downarrow$" in text
    assert text.count(r"\\") == 1 + len(ROWS)


def test_html_escapes_titles_and_marks_cells():
    text = as_html(ROWS, [PERPLEXITY], RANKED)
    assert "<b>31.90 ± 0.10</b>" in text
    assert "counted &amp; sure" in text
    assert text.count("<tr>") == 1 + len(ROWS)


def test_the_data_of_a_table_are_its_unrounded_figures():
    (column,) = as_data(ROWS, [PERPLEXITY])["columns"]
    assert column["figures"]["type1"] == 31.903
    assert column["paper"] == {"type2": 31.95}
