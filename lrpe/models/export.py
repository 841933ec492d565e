"""A folder that anyone can load: configuration, weights, tokenizer, a card; and on request the code, self-contained."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from lrpe.atomic import atomic_folder, naming_failure
from lrpe.errors import require
from lrpe.models import auto
from lrpe.models.card import card, ways_to_load
from lrpe.models.configuration import LrpeConfig
from lrpe.models.flatten import flatten
from lrpe.models.plugins import plugins
from lrpe.models.saved import CLASSES, find_model, load_model
from lrpe.models.trunk import LrpeModel

# Whatever else lies beside a model (notes, credentials, the state of a run) is not ours to give away.
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"),
)


def export(source: Path, to: Path, remote_code: bool = False) -> Path:
    """Write the model of a folder, or of a run's ``best`` or ``last``, to a new folder; whole or not at all.

    Args:
        source: the folder of the model or of the run. Of what lies beside the model only the files of a tokenizer or a
            processor are copied.
        to: the new folder.
        remote_code: whether the folder also gets the code that loads it, for those who have transformers and not lrpe
            and who trust it: ``AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)``.

    Raises:
        LrpeError: if ``to`` is not empty, if a file to copy is a link out of the folder, or if the code of an encoding
            that was registered by somebody else would have to be carried along.
    """
    found = find_model(source)
    model = load_model(found)
    vars(model.config).pop("auto_map", None)  # where code was, if the model carried some
    foreign, kind = plugins(model.config), type(model).__name__
    require(
        not (remote_code and foreign),
        f"The code that a model carries is that of lrpe, and {', '.join(foreign)} was registered elsewhere: it would "
        "load nowhere. Export without the code; whoever loads the model imports the module that registers it first.",
    )
    loading = ways_to_load(kind, to.name, _auto_classes(kind), remote_code)

    def finish(folder: Path) -> None:
        if remote_code:
            _add_code(folder, kind)
        (folder / "README.md").write_text(card(model, to.name, folder, loading, foreign, remote_code), encoding="utf-8")

    return write_model(model, source, to, finish)


def write_model(model: Any, source: Path, to: Path, finish: Callable[[Path], None]) -> Path:
    """Save a model to a new folder with the known files beside it in the source; ``finish`` adds the rest."""
    require(
        not to.exists() or (to.is_dir() and not any(to.iterdir())),
        f"An export is written to a new folder; {str(to)!r} is not empty.",
    )
    with naming_failure(to, SafetensorError), atomic_folder(to) as folder:
        model.save_pretrained(folder)
        for beside in (find_model(source), source / "tokenizer"):
            _copy_known(beside, source.resolve(), folder)
        finish(folder)
    return to


def _copy_known(folder: Path, root: Path, to: Path) -> None:
    for file in (folder / name for name in BESIDE):
        if file.is_file() and not (to / file.name).exists():
            require(
                file.resolve().is_relative_to(root),
                f"{str(file)!r} is a link out of the folder, to {str(file.resolve())!r}, which may not be meant for "
                "others. Put a copy in its place.",
            )
            shutil.copyfile(file, to / file.name)


def _add_code(folder: Path, kind: str) -> None:
    """Flat files of our code beside the model, and in its configuration where each class is."""
    flatten([CLASSES[kind].__module__, LrpeModel.__module__, LrpeConfig.__module__], folder)
    places = {"AutoConfig": LrpeConfig, "AutoModel": LrpeModel} | dict.fromkeys(_auto_classes(kind), CLASSES[kind])
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values |= {"auto_map": {name: _flat_class(found) for name, found in places.items()}}
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _auto_classes(kind: str) -> list[str]:
    """The auto classes that know a class of ours; one that none of them knows is found by AutoModel."""
    return [each.__name__ for each, model in auto.MODELS.items() if model.__name__ == kind] or ["AutoModel"]


def _flat_class(kind: type) -> str:
    return f"{kind.__module__.replace('.', '_')}.{kind.__name__}"
