"""Models that Hugging Face transformers loads, trains and generates with; importing them registers the auto classes."""

from lrpe.models import _needs as _needs  # first
from lrpe.models.architectures import architecture
from lrpe.models.auto import register
from lrpe.models.cache import LrpeCache
from lrpe.models.causal_lm import LrpeForCausalLM
from lrpe.models.configuration import LrpeConfig
from lrpe.models.image_classification import LrpeForImageClassification
from lrpe.models.masked_lm import LrpeForMaskedLM
from lrpe.models.pair_classification import LrpeForPairClassification
from lrpe.models.sequence_classification import LrpeForSequenceClassification
from lrpe.models.token_classification import LrpeForTokenClassification
from lrpe.models.trunk import LrpeModel

register()

__all__ = [
    "LrpeCache",
    "LrpeConfig",
    "LrpeForCausalLM",
    "LrpeForImageClassification",
    "LrpeForMaskedLM",
    "LrpeForPairClassification",
    "LrpeForSequenceClassification",
    "LrpeForTokenClassification",
    "LrpeModel",
    "architecture",
]
