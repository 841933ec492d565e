"""The engines that compute the sums: ``torch`` computes every one, ``native`` those of float32 on a CPU, faster."""

from lrpe.attention.engines.choice import Ran, last, status, use

__all__ = ["Ran", "last", "status", "use"]
