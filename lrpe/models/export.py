"""Export a model to a folder that anyone can load: configuration, weights, tokenizer, card, and optionally code."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError

from lrpe.atomic import atomic_folder, naming_failure
from lrpe.encodings.config import EncodingConfig
from lrpe.errors import require
from lrpe.models.configuration import LrpeConfig
from lrpe.models.remote_code import add_code, find_foreign
from lrpe.models.saved import CLASSES, MODELS, find_model, load_model
from lrpe.models.schema import read_object
from lrpe.plugins import Plugin

# Only these files are copied: others beside a model (notes, credentials, a run's state) may be private.
_COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
    *("chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"),
)
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")
_GENERIC_TOKENIZERS = (
    "",
    "TokenizersBackend",
    "PreTrainedTokenizerFast",
)  # the classes of any tokenizer.json, which say nothing
_TYPES = {"unitary": "Type 1", "orthogonal": "Type 2", "permutation": "Type 3", "stochastic": "SPE"}


def export(source: Path, to: Path, remote_code: bool = False) -> Path:
    """Write the model of a folder, or of a run's ``best`` or ``last``, to a new folder; whole or not at all.

    Args:
        source: the folder of the model or of the run. Of the other files in it, only those of a tokenizer or a
            processor are copied.
        to: the new folder.
        remote_code: whether to add the code that loads the model, for users who have transformers but not lrpe and
            who trust it: ``AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)``.

    Raises:
        LrpeError: if ``to`` is not empty, if a file to copy is a link out of the folder, or if ``remote_code`` would
            need code that cannot be copied: of an encoding that another package registered, or of a plug-in that
            imports more than names from modules of lrpe.

    The plug-ins of the model are written beside it, as files that run only if a user asks for it.
    """
    found = find_model(source)
    model = load_model(found)
    vars(model.config).pop("auto_map", None)  # it would name the code of the folder that was loaded
    (foreign, used), kind = find_foreign(model.config), type(model).__name__
    require(
        not (remote_code and foreign),
        f"remote_code copies the code of lrpe and of plug-ins, and {', '.join(foreign)} was registered elsewhere, so "
        "the copy would not load. Export without remote_code, or register it in a plug-in; to load the model, first "
        "import the module that registers it.",
    )
    loading = _write_loading_code(kind, to.name, _auto_classes(kind), remote_code, used)

    def finish(folder: Path) -> None:
        if remote_code:
            add_code(folder, CLASSES[kind], _auto_classes(kind), used)
        for plugin in () if remote_code else used:
            (folder / plugin.file_name).write_text(plugin.source, encoding="utf-8")
        (folder / "README.md").write_text(
            _write_card(model, to.name, folder, loading, foreign, remote_code), encoding="utf-8"
        )

    return write_model(model, source, to, finish)


def write_model(model: Any, source: Path, to: Path, finish: Callable[[Path], None]) -> Path:
    """Save a model to a new folder, copy the known files of ``source``, and let ``finish`` add the rest."""
    require(
        not to.exists() or (to.is_dir() and not any(to.iterdir())),
        f"An export must be written to a new or empty folder; {str(to)!r} is not empty. Name another one.",
    )
    with naming_failure(to, SafetensorError), atomic_folder(to) as folder:
        model.save_pretrained(folder)
        for beside in (find_model(source), source / "tokenizer"):
            _copy_known(beside, source.resolve(), folder)
        finish(folder)
    return to


def _copy_known(folder: Path, root: Path, to: Path) -> None:
    for file in (folder / name for name in _COPIED):
        if file.is_file() and not (to / file.name).exists():
            require(
                file.resolve().is_relative_to(root),
                f"{str(file)!r} must not be a link out of the folder, because its target may be private; it links to "
                f"{str(file.resolve())!r}. Put a copy in its place.",
            )
            shutil.copyfile(file, to / file.name)


def _auto_classes(kind: str) -> list[str]:
    """Return the auto classes of one of our classes, or AutoModel if it has none."""
    return [each.__name__ for each, model in MODELS.items() if model.__name__ == kind] or ["AutoModel"]


def _write_card(
    model: Any, name: str, folder: Path, loading: Sequence[str], foreign: Sequence[str], remote_code: bool
) -> str:
    """Return the README.md of a model that was written to ``folder``."""
    config = model.config
    attention = config.attention if isinstance(config.attention, str) else "mixed"
    needs = "Its code is in this folder." if remote_code else "It needs lrpe: pip install 'lrpe[models]'."
    if foreign:
        needs += f" Import first what registers {', '.join(foreign)}."
    return page(name, folder, model, f"{attention} attention", _describe_encodings(config), loading, needs)


def page(
    name: str, folder: Path, model: Any, attention: str, encodings: Sequence[str], loading: Sequence[str], needs: str
) -> str:
    """Return the text of a model card, README.md."""
    count, config = sum(parameter.numel() for parameter in model.parameters()), model.config
    lines = "\n".join(f"- {line}" for line in (*encodings, _describe_tokenizer(folder)))
    code = "\n".join(loading)
    return f"""---
library_name: transformers
tags: [lrpe, linear-attention]
---
# {name}

{type(model).__name__}: {count / 1e6:.2f} million parameters, {config.num_hidden_layers} layers of width \
{config.hidden_size}, {attention}, with linearized relative positional encoding (Qin et al., 2023).

{lines}

```python
{code}
```

{needs} Saved by transformers {transformers.__version__}.
"""


def _describe_encodings(config: LrpeConfig) -> list[str]:
    """Return one line per encoding of a model, with the layers that use it."""
    layers: dict[str, list[int]] = {}
    for layer in range(config.num_hidden_layers):
        layers.setdefault(describe_encoding(config.layer_encoding(layer)), []).append(layer)
    if len(layers) == 1:
        return [f"Encoding: {next(iter(layers))}"]
    return [f"Encoding of layers {', '.join(map(str, where))}: {text}" for text, where in layers.items()]


def describe_encoding(encoding: EncodingConfig) -> str:
    """Describe the type, P and Λ of an encoding."""
    kind = _TYPES.get(encoding.matrix, "a type of its own")
    if encoding.matrix == "orthogonal" and encoding.rotated == 0 and encoding.alternating == 0:
        return "none"
    angles = f", {_describe_angles(encoding)}" if encoding.matrix in ("unitary", "orthogonal") else ""
    return f"{kind}, P {encoding.basis}, Λ {encoding.matrix}{angles}"


def _describe_angles(encoding: EncodingConfig) -> str:
    kind = encoding.angles if isinstance(encoding.angles, str) else "given"
    return f"{'learned' if encoding.learned_angles else 'fixed'} {kind} angles"


def _describe_tokenizer(folder: Path) -> str:
    """Describe the tokenizer in a folder: its class, its algorithm and the number of its entries."""
    settings, content = (
        read_object(file) if file.is_file() else None for file in map(folder.joinpath, _TOKENIZER_FILES)
    )
    if settings is None and content is None:
        return "Tokenizer: none"
    known = [str((settings or {}).get("tokenizer_class") or ""), _describe_vocabulary(content or {})]
    return f"Tokenizer: {', '.join(text for text in known if text not in _GENERIC_TOKENIZERS) or 'in this folder'}"


def _describe_vocabulary(content: dict[str, Any]) -> str:
    """Describe the algorithm and entries of a tokenizer.json; return "" if it does not give them."""
    match content:
        case {"model": {"type": str(algorithm), "vocab": dict(entries)}, "added_tokens": list(added)}:
            names = {*entries, *(token.get("content") for token in added if isinstance(token, dict))}
            return f"{algorithm} with {len(names):,} entries"
    return ""


def _write_loading_code(
    kind: str, name: str, autos: Sequence[str], remote_code: bool, used: Sequence[Plugin]
) -> list[str]:
    """Return the lines of Python that load the model; a class without an auto class is imported by name."""
    if remote_code:
        call = f'model = {autos[0]}.from_pretrained("{name}", trust_remote_code=True)'
        return [f"from transformers import {autos[0]}", "", call]
    running = [f'load_plugin("{name}/{plugin.file_name}")  # runs this file: read it first' for plugin in used]
    imports = ["from lrpe.plugins import load_plugin"] if used else []
    if kind not in (model.__name__ for model in MODELS.values()):
        call = f'model = {kind}.from_pretrained("{name}")'
        return [f"from lrpe.models import {kind}", *imports, "", *running, call]
    call = f'model = {autos[0]}.from_pretrained("{name}")'
    return ["import lrpe.models", *imports, f"from transformers import {autos[0]}", "", *running, call]
