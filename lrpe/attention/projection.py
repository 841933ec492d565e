"""The linear layers of models: torch's, but at inference a few rows are multiplied at the speed of memory."""

import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.attention.engines.choice import allows
from lrpe.attention.engines.native_product import can_multiply, multiply


class Projection(nn.Linear):
    """y = W x + b. A decoded token is one row, and its time that of reading W: the native kernel reads it in order."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if can_multiply(input, weight, bias) and allows("native"):
            return multiply(input, weight, bias)
        return F.linear(input, weight, bias)
