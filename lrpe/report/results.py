"""A table that was trained: printed, written in every format, and as a page with its curves."""

import json
from pathlib import Path
from typing import Any

import yaml

from lrpe.experiments.baselines import counted_perplexity
from lrpe.experiments.listing import curve
from lrpe.experiments.methods import SETTINGS
from lrpe.experiments.summary import Chosen, Scores, averages, deviations, means
from lrpe.experiments.table import Figure
from lrpe.experiments.tables import title_of
from lrpe.experiments.written import to_dict
from lrpe.report.curves import curves_spec
from lrpe.report.formats import FORMATS, as_html, as_text
from lrpe.report.page import folded, heading, made_by, paragraph, picture, write_page
from lrpe.report.picture import Spec, as_svg, save_picture
from lrpe.report.table import Column, as_data
from lrpe.stamp import describe, stamp
from lrpe.whole import write_whole


def report_table(chosen: Chosen, out: Path, command: str) -> tuple[str, Path]:
    """Write the table to a folder as text, Markdown, LaTeX, JSON and a page; the text, and where the page is."""
    mark, titles = stamp("transformers"), row_titles(chosen)
    parts, texts, data = [], [], {"command": command, "stamp": mark, "settings": {}}
    out.mkdir(parents=True, exist_ok=True)
    for setting in chosen.settings:
        columns = columns_of(chosen, setting)
        texts.append(f"{setting_title(chosen, setting)}\n\n{as_text(titles, columns, chosen.rows)}")
        parts += [heading(f"Setting: {setting}"), as_html(titles, columns, chosen.rows)]
        data["settings"][setting] = as_data(titles, columns)
        for suffix, write in FORMATS.items():
            write_whole(out / f"{setting}.{suffix}", write(titles, columns, chosen.rows) + "\n")
        for name, spec in curves_of(chosen, setting).items():
            save_picture(spec, out / f"{setting}-{name}")
            bands = "; bands are the seeds' range" if len(chosen.seeds) > 1 else ""
            parts.append(picture(as_svg(spec), f"{name} in validation while training{bands}."))
    notes = [*notes_of(chosen), describe(mark)]
    write_whole(out / "table.json", json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    parts += [*(paragraph(note) for note in notes), made_by(command), folded("Configurations", configurations(chosen))]
    page = write_page(out / "index.html", chosen.table.title, parts)
    text = "\n\n".join([*texts, "\n".join(notes)])
    write_whole(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    return text, page


def row_titles(chosen: Chosen) -> dict[str, str]:
    counted = {"unigrams": "unigrams, counted", "bigrams": "bigrams, counted"} if chosen.table.counted else {}
    return {row: title_of(row) for row in chosen.rows} | counted


def setting_title(chosen: Chosen, setting: str) -> str:
    return f"{chosen.table.title}: {setting}"


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


Counts = dict[str, dict[str, dict[str, float]]]  # perplexity by column, split, and what is counted


def counts_of(chosen: Chosen, setting: str) -> Counts:
    """What counting alone gives on the tokens that the rows are scored on."""
    cells = [chosen.prepare(figure.cell(chosen.rows[0], setting)) for figure in chosen.table.figures]
    return {column: counted_perplexity(cell) for column, cell in {cell.column: cell for cell in cells}.items()}


def column_of(chosen: Chosen, setting: str, figure: Figure, scores: Scores, counts: Counts) -> Column:
    """The column, and in its title what stands in for the data."""
    cell = figure.cell(chosen.rows[0], setting)
    used = chosen.prepare(cell).data.name
    title = figure.title if used == cell.data.name else f"{figure.title} ({used})"
    figures = means(scores) | counts.get(cell.column, {}).get(figure.split, {})
    return Column(title, figures, figure.digits, figure.better, deviations(scores), figure.paper)


def curves_of(chosen: Chosen, setting: str) -> dict[str, Spec]:
    """A picture for each column that was trained, by the name of what it shows."""
    specs: dict[str, Spec] = {}
    for figure in chosen.table.figures:
        cells = {row: chosen.of_seeds(figure, row, setting) for row in chosen.rows}
        first = next(iter(cells.values()))[0]
        found = {row: [curve(chosen.runs / cell.name) for cell in group] for row, group in cells.items()}
        metrics = {metric for group in found.values() for metric, points in group if points}
        drawn = {row: [points for _, points in group if points] for row, group in found.items()}
        for metric in metrics:
            name = " ".join(filter(None, (first.column, first.variant, metric)))
            lines = {row: group for row, group in drawn.items() if group}
            specs.setdefault(name, curves_spec(lines, row_titles(chosen), metric, log=metric == "perplexity"))
    return specs


def notes_of(chosen: Chosen) -> list[str]:
    """What the figures are, in sentences."""
    cells = {cell.name: cell for cell in chosen.cells()}.values()
    scales = {cell.scale for cell in cells}
    used = "; ".join(sorted({f"{cell.column} from {cell.data.name}" for cell in cells}))
    notes = [(SETTINGS[setting].__doc__ or "").partition("\n")[0] for setting in chosen.settings]
    return [*notes, f"Data: {used}.", *scale_note(scales), *paper_note(chosen), *decay_note(chosen), seed_note(chosen)]


def scale_note(scales: set[str]) -> list[str]:
    if scales == {"paper"}:
        return []
    return [
        f"Scale: {', '.join(sorted(scales))}, so not the paper's model, length and number of updates: only the order "
        "of the rows can be compared with the paper's, and that with care."
    ]


def paper_note(chosen: Chosen) -> list[str]:
    if not {"spe", "per"} & set(chosen.rows) or not any(figure.paper for figure in chosen.table.figures):
        return []
    return [
        "The paper's SPE held no positions, and its PER's decay grew towards later tokens where tokens look both ways; "
        "ours do not, so those cells cannot be compared with the paper's."
    ]


def decay_note(chosen: Chosen) -> list[str]:
    if "per" not in chosen.rows or chosen.table.name not in ("lm", "normalizer", "length"):
        return []
    return [
        "PER has the decay a head that it was published with and the other rows have none, so its figure is of more "
        "than its encoding; the rows recommended and softmax-decay have a decay too."
    ]


def seed_note(chosen: Chosen) -> str:
    if len(chosen.seeds) == 1:
        return f"One seed ({chosen.seeds[0]}): small differences mean nothing."
    return f"Seeds {', '.join(map(str, chosen.seeds))}; ± is the standard deviation over them."


def configurations(chosen: Chosen) -> str:
    cells: dict[str, Any] = {cell.name: to_dict(cell) for cell in chosen.cells()}
    return yaml.safe_dump(cells, sort_keys=False, allow_unicode=True)
