"""Export a model of lrpe, or a transformers model in which a part was replaced."""

from pathlib import Path
from typing import Any

from lrpe.adapt.saving import MODEL_TYPE, Replacement, from_pretrained
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import require
from lrpe.models.export import describe_encoding, page, write_model
from lrpe.models.export import export as export_ours
from lrpe.models.saved import find_model, quietly
from lrpe.models.schema import read_object


def export(source: Path, to: Path, remote_code: bool = False) -> Path:
    """Write the model of a folder, or of a run's ``best`` or ``last``, to a new folder; see ``lrpe.models.export``.

    Raises:
        LrpeError: also if ``remote_code`` is set for a replaced model.
    """
    found = find_model(source)
    if read_object(found / "config.json").get("model_type") != MODEL_TYPE:
        return export_ours(source, to, remote_code)
    require(
        not remote_code,
        "remote_code must be False for a replaced model, whose class is in transformers; got remote_code=True. Export "
        "it without, and load it by lrpe.adapt.from_pretrained.",
    )
    with quietly():
        model = from_pretrained(found)

    def finish(folder: Path) -> None:
        (folder / "README.md").write_text(_card(model, to.name, folder), encoding="utf-8")

    return write_model(model, source, to, finish)


def _card(model: Any, name: str, folder: Path) -> str:
    record: Replacement = model.config.lrpe_replacement
    loading = ["import lrpe.adapt", "", f'model = lrpe.adapt.from_pretrained("{name}")']
    needs = "It needs lrpe: pip install 'lrpe[models]'."
    encoding = f"Encoding: {_describe_encoding(record, hasattr(model.base_model, 'rotary_emb'))}"
    return page(name, folder, model, _describe(record), [encoding], loading, needs)


def _describe(record: Replacement) -> str:
    if record.part == "rotary":
        return "its own attention"
    where = "all layers" if record.layers is None else f"layers {', '.join(map(str, record.layers))}"
    return f"{record.attention} attention in {where}"


def _describe_encoding(record: Replacement, rotary: bool) -> str:
    if record.encoding is None:
        return "Type 2 with its own rotary angles, learned" if rotary else "none, beside its absolute positions"
    if isinstance(record.encoding, str):
        return describe_encoding(
            configure_for_heads(record.encoding, head_dim=64, key_heads=1)
        )  # the text does not depend on sizes
    return describe_encoding(record.encoding)
