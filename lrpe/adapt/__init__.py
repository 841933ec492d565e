"""Use our encodings or our attention in any supported model of Hugging Face transformers."""

from lrpe.adapt import _needs as _needs  # first
from lrpe.adapt.replace import replace_attention, replace_rotary
from lrpe.adapt.saving import from_pretrained, register

register()

__all__ = ["from_pretrained", "replace_attention", "replace_rotary"]
