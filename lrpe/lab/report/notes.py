"""Sentences about a table: what it shows, what its figures mean, and the data that they were measured on."""

import math
from collections.abc import Iterable, Sequence

from lrpe.lab.data.catalog import CATALOG
from lrpe.lab.experiments.baselines import COUNTED
from lrpe.lab.experiments.columns import intended_data
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import SETTINGS, SEVEN, find_method
from lrpe.lab.experiments.paper import BASIS
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.tables import split_row, title_of
from lrpe.lab.report.paired_test import LEVEL, PairedTest
from lrpe.lab.report.table import FigureColumn, mark_references


def summarize(rows: dict[str, str], column: FigureColumn, ranked: Sequence[str]) -> list[str]:
    """Return the best rows, the best of the paper's rows beside Base, and linear beside softmax attention.

    A sentence whose rows are missing is left out.

    Args:
        rows: {name: title}, as the table is printed.
        column: the figures that the sentences compare; without a direction there are none.
        ranked: the names of the trained rows, which are compared with each other.
    """
    known = [row for row in ranked if math.isfinite(column.figures.get(row, math.nan))]
    if column.better is None or len(known) < 2:
        return []
    known.sort(key=lambda row: column.figures[row] * (-1 if column.better == "higher" else 1))
    shown = {row: f"{rows[row]} ({column.figures[row]:.{column.digits}f})" for row in known}
    most = "lowest" if column.better == "lower" else "highest"
    best, second = known[:2]
    level = _compare(column, best, second) == "is level with"
    lead = f"and {shown[second]} are {most}" if level else f"is {most}, followed by {shown[second]}"
    first = f"{column.title}: {shown[best]} {lead}{_beside_counting(column, known)}."
    return [first, *_about_the_paper(column, known, shown), *_about_softmax(column, known, shown)]


def _compare(column: FigureColumn, row: str, other: str) -> str:
    """Return how a row is beside another, by the printed figures."""
    mine, theirs = (round(column.figures[each], column.digits) for each in (row, other))
    if mine == theirs:
        return "is level with"
    return "is ahead of" if (mine < theirs) == (column.better == "lower") else "is behind"


def _about_the_paper(column: FigureColumn, known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare the best of the paper's relative encodings with Base."""
    relative = [row for row in known if row in SEVEN and row != "base"]
    if "base" not in known or not relative:
        return []
    order = _compare(column, relative[0], "base")
    best = f"The best of the paper's relative encodings, {shown[relative[0]]},"
    test = column.tests.get("base", {}).get(relative[0])
    return [f"{best} {order} {shown['base']}, which adds absolute positions{_finding(test)}."]


def _finding(test: PairedTest | None) -> str:
    """Return what the paired test finds, to be appended to a sentence; empty if nothing was tested."""
    if test is None:
        return ""
    verdict = "is significant" if test.significant else "is not significant"
    return f"; over {test.seeds} seeds the difference {verdict} (p = {test.adjusted:.2g}, corrected)"


def _about_softmax(column: FigureColumn, known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare our recommendation with softmax attention."""
    if not {"recommended", "softmax"} <= set(known):
        return []
    order = _compare(column, "recommended", "softmax")
    ours = f"The linear attention that we recommend, {shown['recommended']},"
    return [f"{ours} {order} {shown['softmax']}, whose time is quadratic in the length."]


def _beside_counting(column: FigureColumn, known: Sequence[str]) -> str:
    """Say how many rows are better than counted pairs, if these are shown."""
    counted = column.figures.get("bigrams")
    if counted is None or column.better != "lower":
        return ""
    ahead = sum(column.figures[row] < counted for row in known)
    pairs = f"counting pairs of neighbouring tokens ({counted:.{column.digits}f})"
    return f"; {ahead} of {len(known)} rows are better than {pairs}"


def notes_of(plan: Plan) -> list[str]:
    """Return the notes of a table."""
    experiments = plan.experiments
    about = [*_setting_notes(plan), *_override_note(experiments), *_own_note(plan), *_baselines_note(plan)]
    return [
        *about,
        *_scale_note(plan, experiments),
        *_paper_note(plan),
        *_decay_note(plan, experiments),
        _seed_note(plan),
        *_test_note(plan),
    ]


_WITH_OWN_PARTS = (
    *("cosformer", "pope", "retnet", "lrpe-d", "mamba3", "softmax", "softmax-decay", "softmax-decay-gate-conv"),
    *("gated-gate-conv", "selective-gate-conv", "softmax-gated-gate-conv", "hybrid-gated-gate-conv", "recommended"),
    *("spread", "spread-gate", "spread-conv", "spread-gate-conv", "hybrid", "hybrid-gate-conv"),
)


def _setting_notes(plan: Plan) -> list[str]:
    return [f"{setting}: {str(SETTINGS[setting].__doc__).splitlines()[0]}" for setting in plan.settings]


def _override_note(experiments: Sequence[Experiment]) -> list[str]:
    """Name the model fields that override setting and row."""
    overridden = sorted({field for each in experiments for field in each.model})
    return [f"Set for every row, overriding the setting and the method: {', '.join(overridden)}."] if overridden else []


def _own_note(plan: Plan) -> list[str]:
    own = [title_of(row) for row in plan.rows if row in _WITH_OWN_PARTS]
    return [f"{', '.join(own)}: with the φ, the normaliser and the decay of its definition."] if own else []


def _baselines_note(plan: Plan) -> list[str]:
    if plan.table.baselines == "chance":
        return ["Chance: a guess that knows the form of the task, at random among the answers that the form allows."]
    if plan.table.baselines == "majority":
        return [
            "Majority class: every sample gets the most frequent label of the training split; a correlation is then 0."
        ]
    if plan.table.baselines is None:
        return []
    return [f"Unigrams and bigrams are counted on at most the first {COUNTED:,} tokens of the training text."]


def _scale_note(plan: Plan, experiments: Sequence[Experiment]) -> list[str]:
    """Say which figures can be compared at this scale."""
    scales = {each.scale for each in experiments}
    if "smoke" in scales:
        return ["Scale: smoke. It shows that every cell trains and is scored; its figures mean nothing."]
    if scales == {"paper"}:
        return []
    reach = "compare only the order of the rows with the paper's, and with care"
    if plan.table.references:
        reach = "compare the rows with each other, not with the paper's figures"
    return [f"Scale: {', '.join(sorted(scales))}, so model, length and number of updates are not the paper's: {reach}."]


def _paper_note(plan: Plan) -> list[str]:
    printed_columns = (*plan.table.printed_columns, *plan.table.references)
    if not {"spe", "per"} & set(plan.rows) or not any(printed.paper for printed in printed_columns):
        return []
    return [
        "The paper's SPE ignored positions, and in bidirectional models its PER's decay grew towards later tokens; "
        "ours do neither, so these cells cannot be compared with the paper's."
    ]


def _decay_note(plan: Plan, experiments: Sequence[Experiment]) -> list[str]:
    """Name the rows with a decay, whose figures measure more than the encoding, if other rows have none."""
    if not any(each.kind in ("language", "tokens") for each in experiments):
        return []
    decayed = [row for row in plan.rows if _has_decay(row)]
    if not decayed or len(decayed) == len(plan.rows):
        return []
    names = ", ".join(map(title_of, decayed))
    return [f"With a decay: {names}; without: the other rows. Figures across the two measure more than the encoding."]


def _has_decay(row: str) -> bool:
    if row in BASIS:  # a P, which is a row of the table of P
        return False
    method = find_method(split_row(row)[0])
    return method.name == "per" or method.fields.get("decay") is not None  # PER's encoding brings its own


def _seed_note(plan: Plan) -> str:
    if len(plan.seeds) == 1:
        return f"One seed ({plan.seeds[0]}), so no difference is tested: a small one may be due to the seed."
    return f"Seeds {', '.join(map(str, plan.seeds))}; ± is the standard deviation over them."


def _test_note(plan: Plan) -> list[str]:
    """Explain the marks of significance, if rows can be compared."""
    marks = mark_references(plan.against)
    compared = [f"{title_of(row)} ({mark})" for row, mark in marks.items() if row in plan.rows]
    if len(plan.seeds) == 1 or len(plan.rows) == 1 or not compared:
        return []
    weak = (
        " With two seeds the test is weak: t has one degree of freedom, so a mark needs a mean difference of 9 times "
        "the differences' deviation for one row, and more for several."
    )
    return [
        f"Significance: Student's paired t-test, two-sided, against {' and '.join(compared)}. Runs of the same seed "
        "see the same data in the same order, so rows are compared seed by seed. A mark means that p is below "
        f"{LEVEL:g} after Holm's correction for all rows compared with that reference in the column; columns are not "
        "corrected for. A row without a mark is not shown to be equal." + (weak if len(plan.seeds) == 2 else "")
    ]


def data_used(experiments: Iterable[Experiment]) -> dict[str, str]:
    """Return {"lra-text on stdlib-packages": description} for the data of every column."""
    used = {label(each): each for each in experiments}
    return {name: _describe(each) for name, each in sorted(used.items())}


def label(experiment: Experiment) -> str:
    """Return the column, and the name of its data if that differs."""
    column, data = experiment.column, experiment.data.name
    return column if column == data else f"{column} on {data}"


def _describe(experiment: Experiment) -> str:
    entry = CATALOG.get(experiment.data.name)
    summary = "Not in the catalogue" if entry is None else entry.summary.rstrip(".")
    sentence = f"{summary[:1].upper()}{summary[1:]}{'' if summary.endswith('?') else '.'}"
    wanted = intended_data(experiment)
    return sentence if wanted == experiment.data.name else f"{sentence} It replaces {wanted}."
