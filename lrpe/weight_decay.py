"""Parameter groups for optimisers: which parameters weight decay applies to."""

import math
from typing import Any

from torch import nn

from lrpe.errors import LrpeError, require
from lrpe.precision import Precise


def parameter_groups(
    model: nn.Module,
    lr: float | None = None,
    weight_decay: float = 0.01,
    without_decay: tuple[type[nn.Module], ...] = (),
) -> list[dict[str, Any]]:
    """Split the learned parameters of any model into a group that decays and one that does not, for an optimiser.

    Matrices decay, including embeddings. Vectors and scalars (norms, biases) do not, nor do the parameters of lrpe's
    encodings and attention: angles (log α), Householder vectors, learned bases, gates, decays. Decay would pull learned
    angles back to their start.

    Args:
        model: any module, with or without modules of lrpe in it.
        lr: the learning rate of both groups; the optimiser's own if None.
        weight_decay: the weight decay of the first group.
        without_decay: further module classes whose parameters do not decay, such as ``(nn.Embedding,)``.

    Returns:
        Two groups, {"params": [...], "weight_decay": ...}; either may be empty.

    >>> import torch, lrpe
    >>> attention = lrpe.LinearAttention(64, heads=4, encoding="type2")
    >>> optimizer = torch.optim.AdamW(lrpe.parameter_groups(attention, lr=1e-3, weight_decay=0.1))
    >>> [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups]
    [(4, 0.1), (5, 0.0)]
    """
    number = isinstance(weight_decay, int | float) and math.isfinite(weight_decay)
    require(
        number and weight_decay >= 0, f"weight_decay must be a number of at least 0; got weight_decay={weight_decay!r}."
    )
    if not isinstance(model, nn.Module):
        raise LrpeError(f"model must be an nn.Module; got {type(model).__name__}.")
    kept = {
        id(p)
        for module in model.modules()
        if isinstance(module, (Precise, *without_decay))
        for p in module.parameters()
    }
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    require(len(learned) > 0, f"model must have a parameter that requires a gradient; {type(model).__name__} has none.")
    decayed = [p for p in learned if p.ndim >= 2 and id(p) not in kept]
    others = [p for p in learned if p.ndim < 2 or id(p) in kept]
    rate = {} if lr is None else {"lr": lr}
    return [{"params": decayed, "weight_decay": weight_decay, **rate}, {"params": others, "weight_decay": 0.0, **rate}]
