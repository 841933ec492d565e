"""Models for Hugging Face transformers: load, train, generate. Importing this package registers the auto classes."""

from lrpe.models import _needs as _needs  # first
from lrpe.models.architectures import architecture
from lrpe.models.cache import LrpeCache
from lrpe.models.classification import (
    LrpeForImageClassification,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    LrpeForTokenClassification,
)
from lrpe.models.configuration import LrpeConfig
from lrpe.models.language_models import LrpeForCausalLM, LrpeForMaskedLM
from lrpe.models.saved import register
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
