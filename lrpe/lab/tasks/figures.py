"""Metrics as a person reads them."""

from collections.abc import Mapping

LARGEST = 1e6  # a figure above it says only that a model is far from learning, such as e^39, the perplexity of a word


def describe_metrics(metrics: Mapping[str, float | None], form: str = ",.4g") -> str:
    """Return metrics in a line; ``form`` is how a figure is written.

    >>> describe_metrics({"perplexity": 289.912, "word_perplexity": 101675897166494272.0, "bits_per_byte": 8.182})
    'perplexity 289.9, word_perplexity over 1,000,000, bits_per_byte 8.182'
    """
    return ", ".join(f"{name} {_describe(figure, form)}" for name, figure in metrics.items())


def _describe(figure: float | None, form: str) -> str:
    if figure is None:  # what JSON has in place of a number that is not finite
        return "not finite"
    if isinstance(figure, int):  # a count, of parameters for one
        return f"{figure:,}"
    return f"over {LARGEST:,.0f}" if figure > LARGEST else f"{figure:{form}}"
