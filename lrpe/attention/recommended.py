"""What attention is made of where nobody chooses: ``LinearAttention``, ``linear_attention`` and ``LrpeConfig`` agree.

docs/choosing.md has the measurements behind it.
"""

from typing import NamedTuple


class Recommended(NamedTuple):
    encoding: str = "type2"
    feature_map: str = "elu+1"
    normalizer: str = "plain"
    decay: str = "spread"


RECOMMENDED = Recommended()
