"""The norms of a block. All take the mask of real tokens beside the hidden states: batch norm ignores padding."""

from torch import Tensor, nn

from lrpe.precision import compute_dtype


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the real tokens of (batch, n, width): padding neither counts nor is counted.

    In training the mean and variance are those of the batch, and running averages of them are kept for evaluation;
    where activations are checkpointed, and so computed twice, a batch counts twice in these.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        if mask is None or not self.training:
            return super().forward(x.flatten(0, 1)).view_as(x)
        precise = x.to(compute_dtype(x.dtype))
        real = mask[..., None].to(precise.dtype)
        count = real.sum().clamp(min=1)
        mean = (precise * real).sum((0, 1)) / count
        variance = ((precise - mean).square() * real).sum((0, 1)) / count
        self.track(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        return ((precise - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)

    def track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


Norm = LayerNorm | RMSNorm | BatchNorm
NORMS: dict[str, type[Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}
