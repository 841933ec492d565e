"""SPE (Liutkus et al., 2021): random features whose covariance is relative. A baseline outside the family."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lrpe.encodings.encoding import PositionalEncoding, check_features
from lrpe.encodings.position_matrix import Layout, per_head, rows_last
from lrpe.errors import LrpeError, require
from lrpe.positions import batched
from lrpe.precision import compute_dtype, in_float64, keep, next_seed, normal, without_autocast


class _StochasticTable(NamedTuple):
    omega_q: Tensor  # (batch, heads, n, d·(2K+1)): K cosines and sines of each dimension, and a 1 for the gate
    omega_k: Tensor
    noise: Tensor  # (heads, d·(2K+1), R)


class StochasticEncoding(PositionalEncoding):
    """E[q̂ · k̂] = √(R/d) Σ_i q_i k_i ((1-g_i) Σ_k γ_ik² cos(2πf_ik(m-n) + offset_ik) / 2K + g_i), at positions m and n.

    With Ω_q = cos ‖ sin of 2πfm + offset, Ω_k the same without offset and z ~ N(0, 1) · γ / √2K, the features are
    q̂_r = Σ_i q_i (√(1-g_i) (Ω_q z)_ir + √g_i noise_ir) / (R·d)^¼: sines with f = sigmoid(freqs)/2 in [0, ½], gains
    γ = softplus(gains), gates g = sigmoid(gate), all learned. It acts before φ, and is relative only in expectation.

    In training every table draws new noise from torch's global generator, like dropout. Evaluation uses the noise of
    the seed, kept in the state_dict, so that decoding token by token agrees with a pass over the whole sequence.
    """

    acts = "before"
    relative = False
    decay = None
    axes = 1
    score_scale = 1.0

    def __init__(self, head_dim: int, heads: int, sines: int = 1, realizations: int = 64, seed: int | None = None):
        super().__init__()
        sizes = {"head_dim": head_dim, "heads": heads, "sines": sines, "realizations": realizations}
        require(min(sizes.values()) >= 1, f"{', '.join(sizes)} must be at least 1; got {sizes}.")
        self.head_dim, self.heads, self.sines, self.feature_dim = head_dim, heads, sines, realizations
        drawn = normal(3, heads, head_dim, sines, seed=seed)
        self.freqs: Tensor
        self.offsets: Tensor
        self.gains: Tensor
        self.gate: Tensor
        self.noise: Tensor
        keep(self, "freqs", drawn[0] - 4, learned=True)
        keep(self, "offsets", drawn[1].clone(), learned=True)
        keep(self, "gains", 2 * drawn[2] / drawn[2].norm(dim=-1, keepdim=True).sqrt(), learned=True)
        keep(self, "gate", normal(heads, head_dim, seed=next_seed(seed)), learned=True)
        noise = normal(heads, head_dim, 2 * sines + 1, realizations, seed=next_seed(seed, 2))
        keep(self, "noise", noise, learned=False)

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> _StochasticTable:
        dtype = compute_dtype(dtype)
        with without_autocast(positions):
            f = in_float64(self.freqs).sigmoid() / 2
            turns = in_float64(batched(positions))[:, None, :, None, None] * f[:, None]  # (batch, heads, n, d, K)
            offset = in_float64(self.offsets)[:, None]
            omega_q = _circle(2 * math.pi * turns + offset).to(positions.device, dtype)
            omega_k = _circle(2 * math.pi * turns).to(positions.device, dtype)
            return _StochasticTable(omega_q, omega_k, self.mixed_noise(dtype))

    def tables(
        self, positions: Tensor, key_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[_StochasticTable, _StochasticTable]:
        """Return tables that share their noise, at any positions of queries and keys."""
        queries, keys = super().tables(positions, key_positions, dtype)
        return queries, keys._replace(noise=queries.noise)

    def mixed_noise(self, dtype: torch.dtype) -> Tensor:
        noise = torch.randn_like(self.noise) if self.training else self.noise
        gamma = nn.functional.softplus(self.gains).repeat_interleave(2, -1) / math.sqrt(2 * self.sines)
        g = self.gate.sigmoid()[..., None]
        scale = torch.cat([(1 - g).sqrt() * gamma, g.sqrt()], -1) / (self.feature_dim * self.head_dim) ** 0.25
        return (noise * scale[..., None]).flatten(1, 2).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        raise LrpeError("SPE encodes queries and keys differently: use query(q, table) and key(k, table).")

    def query(self, q: Tensor, table: _StochasticTable, layout: Layout = "bhnd") -> Tensor:
        return rows_last(self.project(rows_last(q, layout), table.omega_q, table.noise), layout)

    def key(self, k: Tensor, table: _StochasticTable, layout: Layout = "bhnd") -> Tensor:
        return rows_last(self.project(rows_last(k, layout), table.omega_k, table.noise), layout)

    def project(self, x: Tensor, omega: Tensor, noise: Tensor) -> Tensor:
        """Return x̂_r = Σ_i x_i (Ω_i · z_ir) as (x Ω) z, which never forms the (n, d, R) product Ω z."""
        check_features(x, self.head_dim)
        with without_autocast(x):
            products = per_head(self.spread, x.to(noise.dtype), (omega,), self.heads)  # (..., heads, n, d·(2K+1))
            groups = x.shape[-3] // len(noise)
            return (products @ noise.repeat_interleave(groups, 0)).to(x.dtype)

    def spread(self, x: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        return (x.unsqueeze(-1) * table[0].unflatten(-1, (self.head_dim, -1))).flatten(-2)


def _circle(phase: Tensor) -> Tensor:
    """Return cos and sin of each phase, then 1, for each dimension; (..., d, K) -> (..., d·(2K+1))."""
    waves = torch.stack([phase.cos(), phase.sin()], -1).flatten(-2)
    return nn.functional.pad(waves, (0, 1), value=1.0).flatten(-2)
