"""The report of a trained table: text, Markdown, LaTeX, JSON and a page."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError
from lrpe.lab.experiments.baselines import chance_levels, counted_perplexity, majority_levels
from lrpe.lab.experiments.columns import intended_data
from lrpe.lab.experiments.experiment import Experiment, to_dict
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.runs_on_disk import Scores, averages, means, read_scores
from lrpe.lab.experiments.tables import PrintedColumn, title_of
from lrpe.lab.report.heat_map import show_heat_map
from lrpe.lab.report.notes import data_used, notes_of, summarize
from lrpe.lab.report.origins import read_origins
from lrpe.lab.report.page import (
    beside,
    bullets,
    facts,
    folded,
    heading,
    paragraph,
    preformatted,
    provenance,
    section,
    write_page,
)
from lrpe.lab.report.page_table import as_html, show_tests
from lrpe.lab.report.paired_test import compare_rows
from lrpe.lab.report.table import FigureColumn, as_data, as_text, write_formats
from lrpe.lab.report.training import show_curves, show_training
from lrpe.lab.stamp import describe, stamp
from lrpe.serialization import to_json

_Baselines = dict[str, dict[str, dict[str, float]]]  # figures by column, split and name


def report_table(plan: Plan, out: Path, command: str) -> tuple[str, Path]:
    """Write the table to a folder as text, Markdown, LaTeX, JSON and a page; return the text and the page's path."""
    mark, titles = stamp("transformers"), _row_titles(plan)
    parts, texts, sentences, summary, data = [], [], [], [], {}
    for setting in plan.settings:
        columns = _columns_of(plan, setting)
        write_formats(out / setting, titles, columns, plan.rows)
        shows = summarize(titles, _judged_by(plan, columns), plan.rows)
        texts.append(f"{plan.table.title}: {setting}\n\n{as_text(titles, columns, plan.rows)}")
        sentences += shows if len(plan.settings) == 1 else [f"{setting}: {sentence}" for sentence in shows]
        summary += [heading(setting, 3)] if len(plan.settings) > 1 and shows else []
        summary += [bullets(shows)] if shows else []
        is_map = plan.table.baselines == "chance"
        drawn = show_heat_map(titles, columns, out / f"{setting}-heat-map") if is_map else ""
        scores = beside(as_html(titles, columns, plan.rows), show_curves(plan, setting, out))
        more = [show_tests(titles, columns), *show_training(plan, setting, out)]
        parts.append(section(f"Setting: {setting}", [drawn, scores, *more]))
        data[setting] = as_data(titles, columns)
    notes, used = notes_of(plan), data_used(plan.experiments)
    if _references_of(plan)[0]:
        text, part = _show_references(plan, out)
        texts.append(text)
        parts.append(part)
    origins = read_origins(plan.experiments, plan.runs)
    written = {"command": command, "stamp": mark, "origins": origins.as_data(), "settings": data}
    written |= _references_as_data(plan)
    write_atomically(out / "table.json", to_json(written) + "\n")
    parts += [section("Data", [facts(used)]), section("How to read the figures", [bullets(notes)])]
    trained = map(paragraph, origins.describe())
    parts.append(provenance(mark, command, *trained, folded("Configurations", preformatted(configurations(plan)))))
    sources = [f"Data: {label}. {sentence}" for label, sentence in used.items()]
    about = "\n".join([*sources, *notes, *origins.describe(), f"Reported: {describe(mark)}"])
    text = "\n\n".join([*texts, about, *(["\n".join(["What the table shows", *sentences])] if sentences else [])])
    write_atomically(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    first = [section("Summary", [facts(_conditions(plan)), *summary])]
    return text, write_page(out / "index.html", plan.table.title, [*first, *parts])


def _judged_by(plan: Plan, columns: list[FigureColumn]) -> FigureColumn:
    """Return the column that the summary is about: the average if the table has one, or else the first."""
    return columns[-1] if columns[-1].title == plan.table.average and columns[-1].figures else columns[0]


def _conditions(plan: Plan) -> dict[str, str]:
    """Return the data, the scale and the seeds of all rows."""
    used = data_used(plan.experiments)
    data = next(iter(used.values())) if len(used) == 1 else f"{', '.join(used)}."
    scales = ", ".join(sorted({each.scale for each in plan.experiments}))
    return {"Data": data, "Scale": scales, "Seeds": ", ".join(map(str, plan.seeds))}


_APART = "The paper's figures, on other data than ours"


def _show_references(plan: Plan, out: Path) -> tuple[str, str]:
    """Write the paper's figures that are not comparable with ours as a separate table; return its text and section."""
    titles, columns = _references_of(plan)
    write_formats(out / "paper", titles, columns, list(titles))
    text = f"{_APART}\n\n{as_text(titles, columns, list(titles))}"
    return text, section(_APART, [as_html(titles, columns, list(titles))])


def _references_of(plan: Plan) -> tuple[dict[str, str], list[FigureColumn]]:
    rows = [row for row in plan.rows if any(row in printed.paper for printed in plan.table.references)]
    columns = [
        FigureColumn(
            printed.title,
            {row: printed.paper[row] for row in rows if row in printed.paper},
            printed.digits,
            printed.better,
        )
        for printed in plan.table.references
    ]
    return {row: title_of(row) for row in rows}, columns


def _references_as_data(plan: Plan) -> dict[str, Any]:
    return {"paper": as_data(*_references_of(plan))} if _references_of(plan)[0] else {}


_BASELINE_TITLES = {
    "counted": {"unigrams": "unigrams, counted", "bigrams": "bigrams, counted"},
    "majority": {"majority": "majority class"},
    "chance": {"chance": "chance"},
}


def _row_titles(plan: Plan) -> dict[str, str]:
    return {row: title_of(row) for row in plan.rows} | _BASELINE_TITLES.get(plan.table.baselines or "", {})


def _columns_of(plan: Plan, setting: str) -> list[FigureColumn]:
    scores_by_title = {printed.title: read_scores(plan, printed, setting) for printed in plan.table.printed_columns}
    below = _baselines_of(plan, setting)
    columns = [
        _column_of(plan, setting, printed, scores_by_title[printed.title], below)
        for printed in plan.table.printed_columns
    ]
    if plan.table.average is not None and len(scores_by_title) > 1:
        scores = averages(list(scores_by_title.values()), plan.rows, plan.seeds)
        better = plan.table.printed_columns[0].better
        numbers = plan.table.average_paper or {}
        tests = compare_rows(scores, plan.against)
        columns.append(FigureColumn(plan.table.average, means(scores), 2, better, scores, numbers, tests, plan.against))
    return columns


_COMPUTED = {"counted": counted_perplexity, "majority": majority_levels, "chance": chance_levels}


def _baselines_of(plan: Plan, setting: str) -> _Baselines:
    """Return the baselines, if the table has any, on the data that the rows are scored on.

    Data that cannot be read have none; ``run_experiments`` has said why.
    """
    if plan.table.baselines is None:
        return {}
    compute, found = _COMPUTED[plan.table.baselines], {}
    scored = [_first_experiment(plan, setting, printed) for printed in plan.table.printed_columns]
    for column, experiment in {each.column: each for each in scored}.items():
        with suppress(LrpeError):
            found[column] = compute(experiment)
    return found


def _first_experiment(plan: Plan, setting: str, printed: PrintedColumn) -> Experiment:
    """Return one experiment of a printed column: all of them have the same data."""
    return plan.find_cells(printed, setting)[plan.rows[0]].experiments[0]


def _column_of(plan: Plan, setting: str, printed: PrintedColumn, scores: Scores, below: _Baselines) -> FigureColumn:
    """Return the printed column; its title names the data if they replace the paper's."""
    first = _first_experiment(plan, setting, printed)
    used = first.data.name
    title = printed.title if used == intended_data(first) else f"{printed.title} ({used})"
    baselines = below.get(first.column, {}).get(printed.split, {})
    figures = means(scores) | {name: printed.factor * figure for name, figure in baselines.items()}
    return FigureColumn(
        title,
        figures,
        printed.digits,
        printed.better,
        scores=scores,
        paper=printed.paper,
        tests=compare_rows(scores, plan.against),
        references=plan.against,
    )


def configurations(plan: Plan) -> str:
    configs: dict[str, Any] = {each.name: to_dict(each) for each in plan.experiments}
    return yaml.safe_dump(configs, sort_keys=False, allow_unicode=True)
