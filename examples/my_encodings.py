"""Two encodings of one's own, from the idea to a trained, saved, exported and drawn model, in one file.

    python examples/my_encodings.py --out my_runs

The first, "flip", is a new Λ: it swaps the two features of every pair at odd positions. The second, "unhurried",
depends on the tokens: it is Type 2 with a rule of its own for the steps, u_t = 2σ(W x_t), so that no token goes back
and none counts for more than two.

The file is a plug-in: `lrpe VERB --plugin examples/my_encodings.py` knows both names. It imports names from modules, as
in `from lrpe.module import name`, so that an export with `--remote-code` can carry it.
"""

import torch
from torch import Tensor

from lrpe.attention.steps import Steps
from lrpe.encodings.config import MATRICES
from lrpe.encodings.encoding import STEP_RULES
from lrpe.encodings.family import FAMILY
from lrpe.encodings.position_matrix import PositionMatrix


class Flip(PositionMatrix):
    """Λ^(s) swaps the two features of every pair if s is odd."""

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        odd = positions % 2 == 1
        return (odd[:, None, :, None],)  # (batch, n) -> (batch, 1, n, 1): the same for all heads and features

    def transform(self, y: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        (odd,) = table
        swapped = y.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return torch.where(odd, swapped, y)

    def dense(self, *s: int) -> Tensor:
        swap = torch.tensor([[0, 1], [1, 0]], dtype=torch.complex128)
        return torch.block_diag(*[torch.linalg.matrix_power(swap, s[0] % 2)] * (self.dim // 2))


class BoundedSteps(Steps):
    """u_t = 2σ(W x_t) per key head. W starts at 0, so that all steps start at 1."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * torch.sigmoid(super().forward(x) - 1)  # Steps gives 1 + W x


MATRICES["flip"] = lambda config, axis: Flip(config.share(config.head_dim, axis))  # on a grid each axis gets a share
STEP_RULES["bounded"] = lambda width, key_heads, angles: BoundedSteps(width, key_heads)
FAMILY["flip"] = lambda given: {"basis": "householder", "matrix": "flip"}
FAMILY["unhurried"] = lambda given: {
    "basis": "householder",
    "matrix": "orthogonal",
    "learned_angles": True,
    "steps": "bounded",
}


if __name__ == "__main__":
    import argparse
    from pathlib import Path

    import lrpe
    from lrpe.lab.cli import main
    from lrpe.models.saved import find_model, load_model

    parser = argparse.ArgumentParser(description="Verify, train, load, generate with, export and draw two encodings.")
    parser.add_argument("--out", type=Path, default=Path("my_runs"))
    parser.add_argument("--scale", default="smoke", help="smoke takes seconds; small takes minutes and gives a result")
    options = parser.parse_args()

    def run(*words: object) -> None:
        """Run a command of lrpe that knows this file."""
        print(f"\n$ lrpe {' '.join(map(str, words))} --plugin {__file__}")
        if main([*map(str, words), "--plugin", __file__]) != 0:
            raise SystemExit(1)

    run("verify", "flip", "unhurried")
    rule = BoundedSteps(width=16, key_heads=1)
    torch.nn.init.normal_(rule.weight)
    print(lrpe.verify(lrpe.Orthogonal(8), steps=lambda x: rule(x.float()[None])[0, 0].double(), dim=16))

    table = ("table", "lm", "--columns", "stdlib", "--scale", options.scale, "--runs", options.out)
    run(*table, "--rows", "type2,flip,unhurried")
    for name in ("flip", "unhurried"):
        trained = options.out / "stdlib" / f"{options.scale}-fair" / f"{name}-seed0"
        attention = load_model(find_model(trained)).model.layers[0].attention
        print(f"\n{name}, as loaded: {attention.encoding.matrix}, steps: {attention.steps}")
        run("generate", trained, "--tokens", 20)
        run("export", trained, "--to", options.out / "exported" / name, "--remote-code")
    runs = options.out / "stdlib" / f"{options.scale}-fair"
    page = options.out / "explorer.html"
    run("explore", "--out", page, "--run", runs / "flip-seed0", runs / "unhurried-seed0")
