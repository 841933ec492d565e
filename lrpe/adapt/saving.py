"""Save and load replaced models: config.json records the replacement, and loading repeats it."""

import copy
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import torch
import transformers
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from lrpe.adapt.attention import swap_attention
from lrpe.adapt.derived import Derived, derive
from lrpe.adapt.rotary import swap_rotary
from lrpe.encodings.config import EncodingConfig
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.configuration import LrpeConfig
from lrpe.models.schema import is_json, is_whole, shorten
from lrpe.models.weights import OF_THE_HUB, KeepsPrecision, naming_damage

MODEL_TYPE = "lrpe-replaced"
_REFUSAL = "This model's attention was replaced: load it by lrpe.adapt.from_pretrained"
_AUTO_CLASSES = (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)


@dataclass(frozen=True)
class Replacement:
    """The arguments of replace_rotary (``part="rotary"``) or of replace_attention (``part="attention"``)."""

    part: Literal["rotary", "attention"]
    attention: str = "linear"
    encoding: str | EncodingConfig | None = None
    layers: list[int] | None = None
    choices: dict[str, Any] = field(default_factory=dict)

    def apply(self, model: PreTrainedModel) -> None:
        """Apply the replacement to a model, in place."""
        if self.part == "rotary":
            swap_rotary(model, self.encoding)
        else:
            swap_attention(model, self.attention, self.encoding, self.layers, self.choices)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Raises:
            LrpeError: a choice is an object, which JSON cannot express.
        """
        choices = {name: v.tolist() if isinstance(v, Tensor) else v for name, v in self.choices.items()}
        for name, value in choices.items():
            require(
                is_json(value if not isinstance(value, tuple) else list(value)),
                f"{name} must be a name or numbers to be saved in config.json; got {name}={shorten(value)}. Pass it by "
                "its name when replacing, or save the state_dict alone.",
            )
        encoding = self.encoding.to_dict() if isinstance(self.encoding, EncodingConfig) else self.encoding
        return asdict(self) | {"encoding": encoding, "choices": choices}

    @classmethod
    def from_dict(cls, values: Any) -> "Replacement":
        """Read the record from config.json; raise LrpeError if it is damaged."""
        known = [each.name for each in fields(cls)]
        for name in values if isinstance(values, dict) else ():
            if name not in known:
                raise unknown_name("field of a replacement", name, known)
        match values:
            case {"part": "rotary" | "attention"}:
                encoding = values.get("encoding")
                made = EncodingConfig.from_dict(encoding) if isinstance(encoding, dict) else encoding
                given: dict[str, Any] = values | {"encoding": made}
                found = cls(**given)
            case _:
                raise LrpeError(f"The part of a replacement must be 'rotary' or 'attention'; got {shorten(values)}.")
        _check_types(found)
        return found


def _check_types(found: Replacement) -> None:
    require(isinstance(found.attention, str), f"attention must be a name; got attention={shorten(found.attention)}.")
    require(isinstance(found.choices, dict), f"choices must be a dictionary; got choices={shorten(found.choices)}.")
    numbers = found.layers is None or (isinstance(found.layers, list) and all(map(is_whole, found.layers)))
    require(numbers, f"layers must be a list of numbers, or None; got layers={shorten(found.layers)}.")


class WithRecord(Derived):
    """A configuration that also records what was replaced; only its config.json differs from the original one.

    An auto class of transformers would read an original config.json, find no weights of the original attention, and
    initialise it at random. So the file has a model_type that only lrpe knows, and hides the original fields.
    """

    lrpe_replacement: Replacement

    def to_dict(self: Any) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name != "lrpe_replacement"}  # type: ignore

    def to_json_string(self: Any, use_diff: bool = True) -> str:
        plain = json.loads(super().to_json_string(use_diff))  # type: ignore
        values = {
            "model_type": MODEL_TYPE,
            "architectures": self.architectures,
            "replacement": self.lrpe_replacement.to_dict(),
            # Two levels down: LlamaConfig.from_pretrained looks one level down for a dictionary of its own type.
            "replaced": {"config": plain},
            # The original model's class refuses a string here, and its error shows it.
            "vocab_size": _REFUSAL,
        }
        return json.dumps(values, indent=2, sort_keys=True) + "\n"


class Replaced(Derived, KeepsPrecision):
    """A transformers model with a part replaced; config.json records the replacement, and loading repeats it."""

    config: Any

    def __init__(self, config: Any, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]  # of the transformers class
        _record(config).apply(self)  # type: ignore[arg-type]

    def save_pretrained(self: Any, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as transformers does, under the current names of weights; refuse choices that JSON cannot express."""
        _record(self.config).to_dict()
        super().save_pretrained(save_directory, *args, **{"save_original_format": False} | kwargs)  # type: ignore[misc]

    @classmethod
    def from_pretrained(cls, where: Any, *args: Any, config: Any = None, **options: Any) -> Any:
        """Load as transformers does, from safetensors only; only weights of a new head may be missing."""
        wants_info = options.pop("output_loading_info", False)
        require(
            options.pop("use_safetensors", True),
            "use_safetensors must be True, because pickles can run code; got use_safetensors=False. Leave it out.",
        )
        config = _read_config(_read_values(where, options)) if config is None else config
        with naming_damage(where):
            model, info = super().from_pretrained(  # type: ignore[misc]
                where, *args, config=config, use_safetensors=True, output_loading_info=True, **options
            )
        _check_found(model, info, where)
        return (model, info) if wants_info else model

    def _prepare_cache_for_generation(self: Any, generation_config: Any, *args: Any) -> Any:
        chosen = generation_config.cache_implementation
        require(
            _record(self.config).part == "rotary" or chosen in (None, "dynamic"),
            "cache_implementation must be None or 'dynamic': a replaced attention keeps its own state; got "
            f"cache_implementation={chosen!r}. Leave it out.",
        )
        return super()._prepare_cache_for_generation(generation_config, *args)  # type: ignore[misc]


def _record(config: Any) -> Replacement:
    found = getattr(config, "lrpe_replacement", None)
    if not isinstance(found, Replacement):
        raise LrpeError(
            "config of a replaced model must have the record of the replacement; got a plain "
            f"{type(config).__name__}. Load the plain model, and replace afterwards."
        )
    return found


def remember(model: PreTrainedModel, replacement: Replacement) -> None:
    """Give a model that was replaced in place a class and a configuration that save the record."""
    _with_record(model.config, replacement)
    model.__class__ = derive(Replaced, type(model))


def _with_record(config: Any, replacement: Replacement) -> Any:
    config.__class__ = derive(WithRecord, type(config))
    config.lrpe_replacement = replacement
    return config


def from_pretrained(folder: Any, **options: Any) -> Any:
    """Load a replaced model that ``save_pretrained`` wrote, as the class that was saved.

    Args:
        folder: the folder, or the name of a repository on the hub.
        options: options of transformers' ``from_pretrained``, such as dtype and device_map.

    Raises:
        LrpeError: the folder holds no replaced model, or lacks some of its weights.
    """
    values = _read_values(folder, options)
    saved = _saved_class(values.get("architectures"))
    return saved.from_pretrained(folder, config=_read_config(values), **options)


def _saved_class(architectures: Any) -> Any:
    """Return the class of a replaced model with these architectures in its config.json."""
    match architectures:
        case [str(name)]:
            kind = getattr(transformers, name, None)
            if isinstance(kind, type) and issubclass(kind, PreTrainedModel):
                return derive(Replaced, kind)
    raise LrpeError(
        "architectures must name one model class of transformers; got architectures="
        f"{shorten(architectures)}. Save or download config.json again."
    )


def _read_values(where: Any, options: dict[str, Any]) -> dict[str, Any]:
    hub = {name: options[name] for name in OF_THE_HUB if name in options}
    values, _ = LrpeConfig.get_config_dict(where, **hub)  # its error says what is wrong with a damaged file
    found = values.get("model_type")
    require(
        found == MODEL_TYPE,
        f"model_type must be {MODEL_TYPE!r}; {str(where)!r} has model_type={shorten(found)}. Load it with "
        "transformers, and call replace_rotary or replace_attention.",
    )
    return values


def _read_config(values: dict[str, Any]) -> Any:
    """Return the original model's configuration with the record of the replacement."""
    match values:
        case {"replaced": {"config": {"model_type": str(kind)} as plain}} if kind in CONFIG_MAPPING:
            config = CONFIG_MAPPING[kind].from_dict(plain)
            return _with_record(config, Replacement.from_dict(values.get("replacement")))
    raise LrpeError(
        "replaced in config.json must hold the configuration of the original model; got "
        f"replaced={shorten(values.get('replaced'))}. Save or download it again."
    )


def _check_found(model: Any, info: Any, where: Any) -> None:
    """Refuse a file that lacks weights of the class that was saved; weights of a new head may be missing."""
    if not info["missing_keys"]:
        return
    with torch.device("meta"):
        saved = _saved_class(model.config.architectures)(copy.deepcopy(model.config)).state_dict()
    trunk = f"{model.base_model_prefix}."
    promised = {name.removeprefix(trunk) for name in saved}
    lost = sorted(name for name in info["missing_keys"] if name.removeprefix(trunk) in promised)
    require(
        not lost,
        f"{where} lacks {len(lost)} of the weights that its config.json promises: {', '.join(lost[:3])}. Save or "
        "download them again.",
    )


class ReplacedConfig(PreTrainedConfig):
    """The config.json of a replaced model, with the keys of the file."""

    model_type = MODEL_TYPE


class Loader:
    """Called by an auto class for a ReplacedConfig; loads the class that the auto class has for the original model."""

    config_class = ReplacedConfig
    auto: Any

    @classmethod
    def from_pretrained(cls, where: Any, *args: Any, config: ReplacedConfig, **options: Any) -> Any:
        plain = _read_config(vars(config))
        mapping, kind = cls.auto._model_mapping, type(plain)._made_of[1]
        if kind not in mapping:
            raise LrpeError(
                f"{cls.auto.__name__} has no class for model_type={plain.model_type!r}. Load it by another auto class, "
                "or by lrpe.adapt.from_pretrained."
            )
        return derive(Replaced, mapping[kind]).from_pretrained(where, *args, config=plain, **options)


def register() -> None:
    """Register replaced models with the auto classes; ``import lrpe.adapt`` does it, and repeating it is harmless."""
    AutoConfig.register(MODEL_TYPE, ReplacedConfig, exist_ok=True)
    for auto in _AUTO_CLASSES:
        auto.register(ReplacedConfig, type(f"Replaced{auto.__name__}", (Loader,), {"auto": auto}), exist_ok=True)
