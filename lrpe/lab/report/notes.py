"""What the figures of a table are, in sentences: they stand below it."""

from collections.abc import Iterable, Sequence

from lrpe.lab.data.catalog import CATALOG
from lrpe.lab.experiments.baselines import COUNTED
from lrpe.lab.experiments.columns.named import intended_data
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import SETTINGS
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.tables import title_of


def notes_of(plan: Plan) -> list[str]:
    """What the figures are, in sentences."""
    cells = plan.experiments
    about = [*setting_notes(plan), *given_note(cells), *own_note(plan), *counts_note(plan)]
    return [*about, *scale_note(plan, cells), *paper_note(plan), *decay_note(plan, cells), seed_note(plan)]


def setting_notes(plan: Plan) -> list[str]:
    return [f"{setting}: {str(SETTINGS[setting].__doc__).splitlines()[0]}" for setting in plan.settings]


def given_note(cells: Sequence[Experiment]) -> list[str]:
    """What wins over setting and row."""
    given = sorted({field for cell in cells for field in cell.model})
    return [f"Given for every row, whatever the setting and the row say: {', '.join(given)}."] if given else []


def own_note(plan: Plan) -> list[str]:
    own = [title_of(row) for row in plan.rows if row in ("cosformer", "softmax", "softmax-decay", "recommended")]
    return [f"{', '.join(own)}: with the φ, the normaliser and the decay that it is defined with."] if own else []


def counts_note(plan: Plan) -> list[str]:
    if not plan.table.counted:
        return []
    return [f"Counts are of the first {COUNTED:,} tokens of the training text, at most."]


def scale_note(plan: Plan, cells: Sequence[Experiment]) -> list[str]:
    """What may be compared with what."""
    scales = {cell.scale for cell in cells}
    if "smoke" in scales:
        return ["Scale: smoke, which shows that every cell trains and is scored. Its figures mean nothing."]
    if scales == {"paper"}:
        return []
    reach = "only the order of the rows can be compared with the paper's, and that with care"
    if plan.table.references:
        reach = "the rows can be compared with each other, and not with the paper's figures"
    return [f"Scale: {', '.join(sorted(scales))}, so not the paper's model, length and number of updates: {reach}."]


def paper_note(plan: Plan) -> list[str]:
    figures = (*plan.table.figures, *plan.table.references)
    if not {"spe", "per"} & set(plan.rows) or not any(figure.paper for figure in figures):
        return []
    return [
        "The paper's SPE held no positions, and its PER's decay grew towards later tokens where tokens look both ways; "
        "ours do not, so those cells cannot be compared with the paper's."
    ]


def decay_note(plan: Plan, cells: Sequence[Experiment]) -> list[str]:
    if "per" not in plan.rows or not any(cell.kind == "language" for cell in cells):
        return []
    return [
        "PER has the decay per head that it was published with and the other rows have none, so its figure is of more "
        "than its encoding; the rows recommended and softmax-decay have a decay too."
    ]


def seed_note(plan: Plan) -> str:
    if len(plan.seeds) == 1:
        return f"One seed ({plan.seeds[0]}): small differences mean nothing."
    return f"Seeds {', '.join(map(str, plan.seeds))}; ± is the standard deviation over them."


def data_used(experiments: Iterable[Experiment]) -> dict[str, str]:
    """Return {"lra-text on stdlib-packages": what it is} for the data of every column."""
    used = {label(cell): cell for cell in experiments}
    return {name: _describe(cell) for name, cell in sorted(used.items())}


def label(cell: Experiment) -> str:
    """The column, and what it learns from if that has another name."""
    return cell.column if cell.column == cell.data.name else f"{cell.column} on {cell.data.name}"


def _describe(cell: Experiment) -> str:
    found = CATALOG.get(cell.data.name)
    summary = "Not in the catalogue" if found is None else found.summary.rstrip(".")
    sentence = f"{summary[:1].upper()}{summary[1:]}{'' if summary.endswith('?') else '.'}"
    wanted = intended_data(cell)
    return sentence if wanted == cell.data.name else f"{sentence} It stands in for {wanted}."
