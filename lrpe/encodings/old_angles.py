"""Read angles that earlier versions saved: their parameter was α itself, and now it is log α relative to a start."""

from collections.abc import Iterable

import torch
from torch import Tensor


def start_from_alpha(tensors: dict[str, Tensor], place: str) -> None:
    """Replace the ``alpha`` of one module by start = α and log_alpha = 0, which are exactly the same angles."""
    alpha = tensors.pop(f"{place}alpha")
    tensors[f"{place}start"], tensors[f"{place}log_alpha"] = alpha, torch.zeros_like(alpha)


def places_of_alpha(stored: Iterable[str], wanted: Iterable[str], trunk: str = "") -> list[str]:
    """Return the prefixes of modules that have ``alpha`` among the stored names and ``log_alpha`` among the wanted.

    ``trunk`` is a prefix that either side may lack, as a file of a trunk without its head does.
    """
    learned = {name.removeprefix(trunk) for name in wanted}
    places = [name.removesuffix("alpha") for name in stored if name.endswith(".alpha")]
    return [place for place in places if f"{place.removeprefix(trunk)}log_alpha" in learned]
