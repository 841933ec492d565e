"""Convert Adam's moments of angles from runs of earlier versions, whose parameter was α and now is log α."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from lrpe.encodings.old_angles import places_of_alpha

_POWERS = {"step": 0, "exp_avg": 1, "exp_avg_sq": 2}  # of α in each entry, since ∂L/∂log α = α ∂L/∂α
_REMARK = (
    "This run was started by a version that learned angles α; it continues by learning log α, from the same angles. "
    "Adam's moments were converted for the new parameter."
)


def convert_moments(stored: dict[str, Callable[[], Tensor]], model: Any) -> list[str]:
    """Add the moments of ``log_alpha`` where a run stored those of ``alpha``. The model has its weights already.

    Args:
        stored: for each name, such as "layers.0.weight.exp_avg", a function that reads its tensor.
        model: the model, whose angles are as the run left them.

    Returns:
        What was done, in one line; nothing for a run of this version.
    """
    weights: Any = get_model_state_dict(model)
    places = places_of_alpha([name.removesuffix(".exp_avg") for name in stored], weights)
    for place in places:
        for key, power in _POWERS.items():
            read = stored.get(f"{place}alpha.{key}")
            if read is not None:
                stored[f"{place}log_alpha.{key}"] = partial(_multiply, read, weights[f"{place}start"], power)
    return [_REMARK] if places else []


def _multiply(read: Callable[[], Tensor], start: Tensor, power: int) -> Tensor:
    """Return a moment times α to a power; α is the start as long as log_alpha is 0."""
    moment = read()
    return moment if power == 0 else (moment.double() * start.cpu() ** power).to(moment.dtype)
