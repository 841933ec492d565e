"""From the hidden states of all tokens to one vector."""

import torch
from torch import Tensor

from lrpe.precision import compute_dtype


def pool(x: Tensor, mask: Tensor | None, kind: str) -> Tensor:
    """The mean, the last or the first of the real tokens; (batch, n, width) -> (batch, width)."""
    if mask is None:
        return {"mean": lambda: x.mean(1), "last": lambda: x[:, -1], "first": lambda: x[:, 0]}[kind]()
    real = (mask != 0).long()
    if kind == "mean":
        return ((x * real[..., None]).sum(1, dtype=compute_dtype(x.dtype)) / real.sum(1, keepdim=True).clamp(min=1)).to(
            x.dtype
        )
    order = torch.arange(1, real.shape[1] + 1, device=x.device)
    index = (real * (order if kind == "last" else order.flip(0))).argmax(1)
    return x.gather(1, index[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
