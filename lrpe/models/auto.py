"""Our models under transformers' auto classes: ``AutoModelForCausalLM.from_pretrained`` and its like find them."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from lrpe.models.causal_lm import LrpeForCausalLM
from lrpe.models.configuration import LrpeConfig
from lrpe.models.image_classification import LrpeForImageClassification
from lrpe.models.masked_lm import LrpeForMaskedLM
from lrpe.models.sequence_classification import LrpeForSequenceClassification
from lrpe.models.token_classification import LrpeForTokenClassification
from lrpe.models.trunk import LrpeModel

MODELS = {
    AutoModel: LrpeModel,
    AutoModelForCausalLM: LrpeForCausalLM,
    AutoModelForMaskedLM: LrpeForMaskedLM,
    AutoModelForSequenceClassification: LrpeForSequenceClassification,
    AutoModelForTokenClassification: LrpeForTokenClassification,
    AutoModelForImageClassification: LrpeForImageClassification,
}


def register() -> None:
    """Make the auto classes know our models; done on ``import lrpe.models``, and harmless when done again."""
    AutoConfig.register("lrpe", LrpeConfig, exist_ok=True)
    for auto, model in MODELS.items():
        auto.register(LrpeConfig, model, exist_ok=True)
