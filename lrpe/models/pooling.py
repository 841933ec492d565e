"""From the hidden states of all tokens to one vector, and from that to labels."""

import torch
from torch import Tensor, nn

from lrpe.encodings.precision import compute_dtype
from lrpe.models.configuration import LrpeConfig


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


class Classifier(nn.Module):
    """Dropout and a linear layer to the labels; a tanh layer before them if ``classifier_hidden_size`` is given."""

    def __init__(self, config: LrpeConfig, width: int):
        super().__init__()
        inner = config.classifier_hidden_size
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = None if inner is None else nn.Linear(width, inner)
        self.labels = nn.Linear(inner or width, config.num_labels)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x)
        return self.labels(x if self.dense is None else self.dropout(self.dense(x).tanh()))
