"""Replaced models under transformers' auto classes, which find them once ``lrpe.adapt`` is imported."""

from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
)

from lrpe.adapt.derived import derive
from lrpe.adapt.saving import MODEL_TYPE, Replaced, read_config
from lrpe.errors import LrpeError

AUTO = (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)


class ReplacedConfig(PreTrainedConfig):
    """The config.json of a replaced model, as it is in the file."""

    model_type = MODEL_TYPE


class Loader:
    """What an auto class calls for a ReplacedConfig; it loads what the auto class would for the plain model."""

    config_class = ReplacedConfig
    auto: Any

    @classmethod
    def from_pretrained(cls, where: Any, *args: Any, config: ReplacedConfig, **options: Any) -> Any:
        plain = read_config(vars(config))
        mapping, kind = cls.auto._model_mapping, type(plain)._made_of[1]
        if kind not in mapping:
            raise LrpeError(f"{cls.auto.__name__} has no class for a model of type {plain.model_type!r}.")
        return derive(Replaced, mapping[kind]).from_pretrained(where, *args, config=plain, **options)


def register() -> None:
    """Make the auto classes know replaced models; done on ``import lrpe.adapt``, harmless when done again."""
    AutoConfig.register(MODEL_TYPE, ReplacedConfig, exist_ok=True)
    for auto in AUTO:
        auto.register(ReplacedConfig, type(f"Replaced{auto.__name__}", (Loader,), {"auto": auto}), exist_ok=True)
