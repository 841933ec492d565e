"""The record of a replacement, which config.json stores and loading applies again."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from torch import Tensor
from transformers import PreTrainedModel

from lrpe.adapt.attention import swap_attention
from lrpe.adapt.rotary import swap_rotary
from lrpe.encodings.config import EncodingConfig
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.schema import is_json, is_whole, shorten


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
