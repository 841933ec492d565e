"""Bring your own model: our encodings, or our attention, in a model of Hugging Face transformers."""

from lrpe.replacement import _needs as _needs  # first
from lrpe.replacement.auto import register
from lrpe.replacement.replace import replace_attention, replace_rotary
from lrpe.replacement.saving import from_pretrained

register()

__all__ = ["from_pretrained", "replace_attention", "replace_rotary"]
