"""The engines that compute the sums: ``torch`` every one, ``native`` (CPU) and ``fla`` (GPU) most of them, faster."""

from lrpe.attention.engines.choice import Ran, last, status, use

__all__ = ["Ran", "last", "status", "use"]
