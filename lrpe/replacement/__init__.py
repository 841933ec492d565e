"""Bring your own model: our encodings, or our attention, in a model of Hugging Face transformers."""

from lrpe.replacement.replace import replace_attention, replace_rotary

__all__ = ["replace_attention", "replace_rotary"]
