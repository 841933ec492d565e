"""A table that was trained: printed, written in every format, and as a page."""

from pathlib import Path
from typing import Any

import yaml

from lrpe.atomic import write_atomically
from lrpe.lab.experiments.baselines import counted_perplexity
from lrpe.lab.experiments.summary import Chosen, Scores, averages, deviations, means
from lrpe.lab.experiments.table import Figure
from lrpe.lab.experiments.tables import title_of
from lrpe.lab.experiments.written import to_dict
from lrpe.lab.report.formats import as_html, as_text, write_formats
from lrpe.lab.report.html import bullets, facts, folded, preformatted, section
from lrpe.lab.report.notes import data_used, notes_of
from lrpe.lab.report.page import beside, provenance, write_page
from lrpe.lab.report.table import Column, as_data
from lrpe.lab.report.training import show_curves, show_training
from lrpe.lab.stamp import describe, stamp
from lrpe.serialization import to_json

Counted = dict[str, dict[str, dict[str, float]]]  # perplexity by column, split, and what is counted


def report_table(chosen: Chosen, out: Path, command: str) -> tuple[str, Path]:
    """Write the table to a folder as text, Markdown, LaTeX, JSON and a page; the text, and where the page is."""
    mark, titles = stamp("transformers"), row_titles(chosen)
    parts, texts, data = [], [], {}
    for setting in chosen.settings:
        columns = columns_of(chosen, setting)
        write_formats(out / setting, titles, columns, chosen.rows)
        texts.append(f"{chosen.table.title}: {setting}\n\n{as_text(titles, columns, chosen.rows)}")
        scores = beside(as_html(titles, columns, chosen.rows), show_curves(chosen, setting, out))
        parts.append(section(f"Setting: {setting}", [scores, *show_training(chosen, setting, out)]))
        data[setting] = as_data(titles, columns)
    notes, used = notes_of(chosen), data_used(chosen.cells())
    if chosen.table.references:
        text, part = show_references(chosen, out)
        texts.append(text)
        parts.append(part)
    written = {"command": command, "stamp": mark, "settings": data} | references_as_data(chosen)
    write_atomically(out / "table.json", to_json(written) + "\n")
    parts += [section("Data", [facts(used)]), section("How to read the figures", [bullets(notes)])]
    parts.append(provenance(mark, command, folded("Configurations", preformatted(configurations(chosen)))))
    sources = [f"Data: {label}. {sentence}" for label, sentence in used.items()]
    text = "\n\n".join([*texts, "\n".join([*sources, *notes, describe(mark)])])
    write_atomically(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    return text, write_page(out / "index.html", chosen.table.title, parts)


APART = "The paper's figures, which are of other data than ours"


def show_references(chosen: Chosen, out: Path) -> tuple[str, str]:
    """Write the paper's figures that cannot stand beside ours as a table of their own; its text, and a section."""
    titles, columns = references_of(chosen)
    write_formats(out / "paper", titles, columns, list(titles))
    text = f"{APART}\n\n{as_text(titles, columns, list(titles))}"
    return text, section(APART, [as_html(titles, columns, list(titles))])


def references_of(chosen: Chosen) -> tuple[dict[str, str], list[Column]]:
    found = chosen.table.references
    rows = [row for row in chosen.rows if any(row in figure.paper for figure in found)]
    columns = [
        Column(
            figure.title, {row: figure.paper[row] for row in rows if row in figure.paper}, figure.digits, figure.better
        )
        for figure in found
    ]
    return {row: title_of(row) for row in rows}, columns


def references_as_data(chosen: Chosen) -> dict[str, Any]:
    return {"paper": as_data(*references_of(chosen))} if chosen.table.references else {}


def row_titles(chosen: Chosen) -> dict[str, str]:
    counted = {"unigrams": "unigrams, counted", "bigrams": "bigrams, counted"} if chosen.table.counted else {}
    return {row: title_of(row) for row in chosen.rows} | counted


def columns_of(chosen: Chosen, setting: str) -> list[Column]:
    found = {figure.title: chosen.scores(figure, setting) for figure in chosen.table.figures}
    counts = counts_of(chosen, setting) if chosen.table.counted else {}
    columns = [column_of(chosen, setting, figure, found[figure.title], counts) for figure in chosen.table.figures]
    if chosen.table.average is not None and len(found) > 1:
        scores = averages(list(found.values()), chosen.rows, len(chosen.seeds))
        better = chosen.table.figures[0].better
        numbers = chosen.table.average_paper or {}
        columns.append(Column(chosen.table.average, means(scores), 2, better, deviations(scores), numbers))
    return columns


def counts_of(chosen: Chosen, setting: str) -> Counted:
    """What counting alone gives on the tokens that the rows are scored on."""
    cells = [chosen.prepare(figure.cell(chosen.rows[0], setting)) for figure in chosen.table.figures]
    return {column: counted_perplexity(cell) for column, cell in {cell.column: cell for cell in cells}.items()}


def column_of(chosen: Chosen, setting: str, figure: Figure, scores: Scores, counts: Counted) -> Column:
    """The column, and in its title what stands in for the data."""
    cell = figure.cell(chosen.rows[0], setting)
    used = chosen.prepare(cell).data.name
    title = figure.title if used == cell.data.name else f"{figure.title} ({used})"
    figures = means(scores) | counts.get(cell.column, {}).get(figure.split, {})
    return Column(title, figures, figure.digits, figure.better, deviations(scores), figure.paper)


def configurations(chosen: Chosen) -> str:
    cells: dict[str, Any] = {cell.name: to_dict(cell) for cell in chosen.cells()}
    return yaml.safe_dump(cells, sort_keys=False, allow_unicode=True)
