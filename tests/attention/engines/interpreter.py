"""Two changes with which Triton's interpreter runs flash-linear-attention's kernels on a CPU, if TRITON_INTERPRET is 1.

1. The autotuner asks a GPU driver which of several configurations is fastest: it gets the first one only.
2. A loop variable is a Python integer there, not a tensor of Triton's, and the kernels cast it: ``range`` yields
   integers that can be cast.
"""

import os
import sys
import warnings

RUNS = os.environ.get("TRITON_INTERPRET") == "1"
os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")  # on a GPU: exact products, not TF32, before Triton compiles one


class _Index(int):
    def to(self, dtype) -> "_Index":
        return self


def _range(*bounds):
    return map(_Index, range(*map(int, bounds)))


def prepare() -> None:
    """Import the kernels, changed."""
    from triton.runtime.autotuner import Autotuner

    original = Autotuner.__init__

    def with_one_configuration(self, fn, arg_names, configs, *args, **options):
        original(self, fn, arg_names, configs[:1], *args, **options)

    Autotuner.__init__ = with_one_configuration
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no GPU, as the kernels' package notes
        import fla.ops.simple_gla  # noqa: F401
    for name, module in list(sys.modules.items()):
        if name.startswith("fla.ops"):
            module.range = _range  # type: ignore[attr-defined]


if RUNS:
    prepare()
