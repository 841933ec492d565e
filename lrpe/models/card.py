"""The card of an exported model: what it is, and how it is loaded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers

from lrpe.encodings.config import EncodingConfig
from lrpe.models import auto
from lrpe.models.configuration import LrpeConfig
from lrpe.models.schema import read_object

TOKENIZER = ("tokenizer_config.json", "tokenizer.json")
NAMELESS = ("", "TokenizersBackend", "PreTrainedTokenizerFast")  # the classes of any tokenizer.json, which say nothing
TYPES = {"unitary": "Type 1", "orthogonal": "Type 2", "permutation": "Type 3", "stochastic": "SPE"}


def card(model: Any, name: str, folder: Path, loading: Sequence[str], plugins: Sequence[str], remote_code: bool) -> str:
    """The README.md of a model of ours that was written to ``folder``."""
    config = model.config
    attention = config.attention if isinstance(config.attention, str) else "mixed"
    needs = "Its code is in this folder." if remote_code else "It needs lrpe: pip install 'lrpe[models]'."
    if plugins:
        needs += f" Import first what registers {', '.join(plugins)}."
    return page(name, folder, model, f"{attention} attention", describe_encodings(config), loading, needs)


def page(
    name: str, folder: Path, model: Any, attention: str, encodings: Sequence[str], loading: Sequence[str], needs: str
) -> str:
    """A card with these parts."""
    count, config = sum(parameter.numel() for parameter in model.parameters()), model.config
    lines = "\n".join(f"- {line}" for line in (*encodings, describe_tokenizer(folder)))
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


def describe_encodings(config: LrpeConfig) -> list[str]:
    """A line for each encoding of a model, with the layers that have it."""
    layers: dict[str, list[int]] = {}
    for layer in range(config.num_hidden_layers):
        layers.setdefault(describe_encoding(config.layer_encoding(layer)), []).append(layer)
    if len(layers) == 1:
        return [f"Encoding: {next(iter(layers))}"]
    return [f"Encoding of layers {', '.join(map(str, where))}: {text}" for text, where in layers.items()]


def describe_encoding(encoding: EncodingConfig) -> str:
    """Type, P and Λ of an encoding, in words."""
    kind = TYPES.get(encoding.matrix, "a type of its own")
    if encoding.matrix == "orthogonal" and encoding.rotated == 0 and encoding.alternating == 0:
        return "none"
    angles = "" if encoding.matrix in ("permutation", "stochastic") else f", {_angles(encoding)}"
    return f"{kind}, P {encoding.basis}, Λ {encoding.matrix}{angles}"


def _angles(encoding: EncodingConfig) -> str:
    return f"{'learned' if encoding.learned_angles else 'fixed'} {encoding.angles} angles"


def describe_tokenizer(folder: Path) -> str:
    """The tokenizer among the files of a folder, in words: its class, its algorithm and the number of its entries."""
    settings, content = (read_object(file) if file.is_file() else None for file in map(folder.joinpath, TOKENIZER))
    if settings is None and content is None:
        return "Tokenizer: none"
    known = [str((settings or {}).get("tokenizer_class") or ""), _describe_vocabulary(content or {})]
    return f"Tokenizer: {', '.join(text for text in known if text not in NAMELESS) or 'in this folder'}"


def _describe_vocabulary(content: dict[str, Any]) -> str:
    """The algorithm and the entries of a tokenizer.json, or nothing if it does not say."""
    match content:
        case {"model": {"type": str(algorithm), "vocab": dict(entries)}, "added_tokens": list(added)}:
            names = {*entries, *(token.get("content") for token in added if isinstance(token, dict))}
            return f"{algorithm} with {len(names):,} entries"
    return ""


def ways_to_load(kind: str, name: str, autos: Sequence[str], remote_code: bool) -> list[str]:
    """Lines of Python; a class that no auto class knows is imported by its name."""
    if remote_code:
        call = f'model = {autos[0]}.from_pretrained("{name}", trust_remote_code=True)'
        return [f"from transformers import {autos[0]}", "", call]
    if kind not in (model.__name__ for model in auto.MODELS.values()):
        return [f"from lrpe.models import {kind}", "", f'model = {kind}.from_pretrained("{name}")']
    call = f'model = {autos[0]}.from_pretrained("{name}")'
    return ["import lrpe.models", f"from transformers import {autos[0]}", "", call]
