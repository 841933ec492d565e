"""A folder that anyone can load: configuration, weights, tokenizer, a card; and on request the code, self-contained."""

import json
import shutil
from pathlib import Path
from typing import Any

import transformers

from lrpe.errors import require
from lrpe.models import auto
from lrpe.models.configuration import LrpeConfig
from lrpe.models.flatten import flatten
from lrpe.models.saved import CLASSES, find_model, load_model
from lrpe.whole import whole_folder

NOT_BESIDE = {".safetensors", ".bin", ".pt", ".pth", ".py", ".distcp"}  # weights, the state of a run, code
OF_A_RUN = {"checkpoint.json", "trainer_state.json", "README.md"}


def export(source: Path, to: Path, remote_code: bool = False) -> Path:
    """Write the model of a folder, or of a run's ``best`` or ``last``, to a new folder; whole or not at all.

    With ``remote_code`` the folder also holds the code that loads it, for those who have transformers and not lrpe and
    who trust it: ``AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)``.
    """
    found = find_model(source)
    require(
        not to.exists() or (to.is_dir() and not any(to.iterdir())),
        f"An export is written to a new folder; {str(to)!r} is not empty.",
    )
    model = load_model(found)
    vars(model.config).pop("auto_map", None)  # where code was, if the model carried some
    with whole_folder(to) as folder:
        model.save_pretrained(folder)
        for beside in (found, source / "tokenizer"):
            copy_beside(beside, folder)
        if remote_code:
            add_code(folder, type(model).__name__)
        (folder / "README.md").write_text(card(model, to.name, remote_code), encoding="utf-8")
    return to


def copy_beside(source: Path, to: Path) -> None:
    """Tokenizer, templates and the like: every file that is not weights, and not written already."""
    for file in source.iterdir() if source.is_dir() else ():
        own = file.name in (OF_A_RUN) or file.suffix in NOT_BESIDE or file.name.startswith((".", "model.safetensors"))
        if file.is_file() and not own and not (to / file.name).exists():
            shutil.copy2(file, to / file.name)


def add_code(folder: Path, name: str) -> None:
    """Flat files of our code beside the model, and in its configuration where each class is."""
    module = CLASSES[name].__module__
    flatten([module, LrpeConfig.__module__], folder)
    places = {"AutoConfig": f"{flat_class(LrpeConfig)}", **auto_classes(name)}
    file = folder / "config.json"
    values = json.loads(file.read_text(encoding="utf-8")) | {"auto_map": places}
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def auto_classes(name: str) -> dict[str, str]:
    """{auto class: where our class is}; a class that no auto class knows is found by AutoModel."""
    found = [kind.__name__ for kind, model in auto.MODELS.items() if model.__name__ == name]
    return dict.fromkeys(found or ["AutoModel"], flat_class(CLASSES[name]))


def flat_class(kind: type) -> str:
    return f"{kind.__module__.replace('.', '_')}.{kind.__name__}"


def ways_to_load(kind: str, name: str, remote_code: bool) -> list[str]:
    """Lines of Python; a class that no auto class knows is imported by its name."""
    auto_class = next(iter(auto_classes(kind)))
    if remote_code:
        return [
            f"from transformers import {auto_class}",
            "",
            f'model = {auto_class}.from_pretrained("{name}", trust_remote_code=True)',
        ]
    if kind not in (model.__name__ for model in auto.MODELS.values()):
        return [f"from lrpe.models import {kind}", "", f'model = {kind}.from_pretrained("{name}")']
    return [
        "import lrpe.models",
        f"from transformers import {auto_class}",
        "",
        f'model = {auto_class}.from_pretrained("{name}")',
    ]


def card(model: Any, name: str, remote_code: bool) -> str:
    config, kind = model.config, type(model).__name__
    first = "\n".join(ways_to_load(kind, name, remote_code))
    encodings = ", ".join(sorted({str(config.layer_encoding(i).matrix) for i in range(config.num_hidden_layers)}))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"""---
library_name: transformers
tags: [lrpe, linear-attention]
---
# {name}

{kind}: {parameters / 1e6:.2f} million parameters, {config.num_hidden_layers} layers of width {config.hidden_size}, \
{config.attention if isinstance(config.attention, str) else "mixed"} attention, Λ: {encodings} (linearized relative \
positional encoding, Qin et al., 2023).

```python
{first}
```

{"Its code is in this folder." if remote_code else "It needs lrpe: pip install 'lrpe[models]'."} Saved by \
transformers {transformers.__version__}.
"""
