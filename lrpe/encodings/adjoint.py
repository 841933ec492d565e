"""Mᵀ beside M, for gradients that are written into memory of their own."""

from torch import Tensor


class HasAdjoint:
    """Something with a ``transform(x, table)`` that is linear in x, and with its transpose, if the class brings one.

    A class that defines ``transform`` anew has an adjoint only if it defines ``adjoint_`` anew as well.
    """

    has_adjoint: bool = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "transform" in vars(cls):
            cls.has_adjoint = "adjoint_" in vars(cls)

    def adjoint_(self, y: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        """Mᵀ y, in the memory of y if that saves time: nobody else will read y."""
        raise NotImplementedError
