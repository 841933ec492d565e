"""What the figures of a table are, in sentences: they stand below it."""

from collections.abc import Iterable, Sequence

from lrpe.lab.data.catalog import CATALOG
from lrpe.lab.experiments.baselines import COUNTED
from lrpe.lab.experiments.columns.named import COLUMNS
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import SETTINGS
from lrpe.lab.experiments.summary import Chosen
from lrpe.lab.experiments.tables import title_of


def notes_of(chosen: Chosen) -> list[str]:
    """What the figures are, in sentences."""
    cells = list({cell.name: cell for cell in chosen.cells()}.values())
    about = [*setting_notes(chosen), *given_note(cells), *own_note(chosen), *counts_note(chosen)]
    return [*about, *scale_note(chosen, cells), *paper_note(chosen), *decay_note(chosen, cells), seed_note(chosen)]


def setting_notes(chosen: Chosen) -> list[str]:
    return [f"{setting}: {str(SETTINGS[setting].__doc__).splitlines()[0]}" for setting in chosen.settings]


def given_note(cells: Sequence[Experiment]) -> list[str]:
    """What wins over setting and row."""
    given = sorted({field for cell in cells for field in cell.model})
    return [f"Given for every row, whatever the setting and the row say: {', '.join(given)}."] if given else []


def own_note(chosen: Chosen) -> list[str]:
    own = [title_of(row) for row in chosen.rows if row in ("cosformer", "softmax", "softmax-decay", "recommended")]
    return [f"{', '.join(own)}: with the φ, the normaliser and the decay that it is defined with."] if own else []


def counts_note(chosen: Chosen) -> list[str]:
    if not chosen.table.counted:
        return []
    return [f"Counts are of the first {COUNTED:,} tokens of the training text, at most."]


def scale_note(chosen: Chosen, cells: Sequence[Experiment]) -> list[str]:
    """What may be compared with what."""
    scales = {cell.scale for cell in cells}
    if "smoke" in scales:
        return ["Scale: smoke, which shows that every cell trains and is scored. Its figures mean nothing."]
    if scales == {"paper"}:
        return []
    reach = "only the order of the rows can be compared with the paper's, and that with care"
    if chosen.table.references:
        reach = "the rows can be compared with each other, and not with the paper's figures"
    return [f"Scale: {', '.join(sorted(scales))}, so not the paper's model, length and number of updates: {reach}."]


def paper_note(chosen: Chosen) -> list[str]:
    figures = (*chosen.table.figures, *chosen.table.references)
    if not {"spe", "per"} & set(chosen.rows) or not any(figure.paper for figure in figures):
        return []
    return [
        "The paper's SPE held no positions, and its PER's decay grew towards later tokens where tokens look both ways; "
        "ours do not, so those cells cannot be compared with the paper's."
    ]


def decay_note(chosen: Chosen, cells: Sequence[Experiment]) -> list[str]:
    if "per" not in chosen.rows or not any(cell.kind == "language" for cell in cells):
        return []
    return [
        "PER has the decay per head that it was published with and the other rows have none, so its figure is of more "
        "than its encoding; the rows recommended and softmax-decay have a decay too."
    ]


def seed_note(chosen: Chosen) -> str:
    if len(chosen.seeds) == 1:
        return f"One seed ({chosen.seeds[0]}): small differences mean nothing."
    return f"Seeds {', '.join(map(str, chosen.seeds))}; ± is the standard deviation over them."


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
    wanted = _named_for(cell)
    return sentence if wanted == cell.data.name else f"{sentence} It stands in for {wanted}."


def _named_for(cell: Experiment) -> str:
    """The data that the column is named for; those of a column that is not registered are its own."""
    return COLUMNS[cell.column](cell.method, cell.setting).data.name if cell.column in COLUMNS else cell.data.name
