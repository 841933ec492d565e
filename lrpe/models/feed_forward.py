"""The feed-forward half of a block."""

from torch import Tensor, nn
from transformers.activations import ACT2FN

from lrpe.models.configuration import LrpeConfig


class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) · up(x)) if it is gated."""

    def __init__(self, config: LrpeConfig):
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(width, inner, bias=bias) if config.gated else None
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self.act = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        inner = self.act(up) if self.gate_proj is None else self.act(self.gate_proj(x)) * up
        return self.dropout(self.down_proj(inner))
