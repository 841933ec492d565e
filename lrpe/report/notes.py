"""What the figures of a table are, in sentences: they stand below it."""

from lrpe.experiments.baselines import COUNTED
from lrpe.experiments.methods import SETTINGS
from lrpe.experiments.summary import Chosen
from lrpe.experiments.tables import title_of


def notes_of(chosen: Chosen) -> list[str]:
    """What the figures are, in sentences."""
    cells = {cell.name: cell for cell in chosen.cells()}.values()
    scales = {cell.scale for cell in cells}
    used = "; ".join(sorted({f"{cell.column} from {cell.data.name}" for cell in cells}))
    about = [*setting_notes(chosen), *own_note(chosen), f"Data: {used}.", *counts_note(chosen)]
    return [*about, *scale_note(scales), *paper_note(chosen), *decay_note(chosen), seed_note(chosen)]


def setting_notes(chosen: Chosen) -> list[str]:
    if chosen.table.name == "normalizer":
        return ["Columns are normalisers, the same for every row; all else is of the setting."]
    return [f"{setting}: {str(SETTINGS[setting].__doc__).splitlines()[0]}" for setting in chosen.settings]


def own_note(chosen: Chosen) -> list[str]:
    own = [title_of(row) for row in chosen.rows if row in ("cosformer", "softmax", "softmax-decay", "recommended")]
    parts = "the φ and the decay" if chosen.table.name == "normalizer" else "the φ, the normaliser and the decay"
    return [f"{', '.join(own)}: with {parts} that it is defined with."] if own else []


def counts_note(chosen: Chosen) -> list[str]:
    if not chosen.table.counted:
        return []
    return [f"Counts are of the first {COUNTED:,} tokens of the training text, at most."]


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
