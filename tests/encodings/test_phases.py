"""Real phases, the sums of token-dependent steps, take the place of positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import Angles, Encoding, Householder, LrpeError, Orthogonal, Unitary
from lrpe.encodings import Fourier, Identity
from lrpe.precision import LACK_FLOAT64
from tests.encodings.compositions import features, make, near, seeds

ROTATIONS = ("type1", "type2", "rope", "fourier*unitary", "fourier*orthogonal", "learned*orthogonal")


def drawn_phases(*shape: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    return (scale * features(*shape, seed=seed)).cumsum(2)


def dense_turn(encode: Encoding, angle: torch.Tensor) -> torch.Tensor:
    """M_p of one token, written out: diag(e^{iθ}) P, or rotations by θ times P."""
    P = encode.basis.dense()
    if encode.matrix.is_complex:
        return torch.diag(torch.polar(torch.ones_like(angle), angle)) @ P
    blocks = [torch.tensor([[t.cos(), -t.sin()], [t.sin(), t.cos()]], dtype=torch.complex128) for t in angle]
    kept = torch.eye(encode.head_dim - 2 * len(blocks), dtype=torch.complex128)
    return torch.block_diag(*blocks, kept) @ P


def expected(encode: Encoding, x: torch.Tensor, phases: torch.Tensor) -> torch.Tensor:
    """M_p x, token by token, for x (batch, heads, n, d) and phases (batch, heads, n, count)."""
    alpha = encode.matrix.angles.scaled().detach().expand(x.shape[1], 1, -1)[:, 0]  # type: ignore[union-attr]
    rows = [
        torch.stack([dense_turn(encode, p * a) @ row.to(torch.complex128) for row, p in zip(xs, ps, strict=True)])
        for batch, turns in zip(x, phases.detach(), strict=True)
        for xs, ps, a in zip(batch, turns, alpha, strict=True)
    ]
    y = torch.stack(rows).unflatten(0, x.shape[:2])
    return torch.cat([y.real, y.imag], -1) if encode.feature_dim == 2 * encode.head_dim else y.real


@given(seed=seeds, first=near)
@pytest.mark.parametrize("name", ROTATIONS)
def test_whole_phases_are_positions(name, seed, first):
    encode = make(name, 6).double()
    positions = first + torch.arange(5)
    x = features(2, 3, 5, 6, seed=seed)
    phased = encode.phase_table(positions.double().reshape(1, 1, 5), x.dtype)
    assert_close(encode(x, table=phased), encode(x, positions), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("heads", [None, 3], ids=["shared-angles", "angles-per-head"])
@pytest.mark.parametrize("steps", ["shared", "per head", "per angle"])
def test_a_token_is_turned_by_its_own_phase(name, heads, steps):
    encode = make(name, 6, heads=heads, learned_angles=True).double()
    count = encode.angle_count
    shape = {"shared": (2, 1, 4), "per head": (2, 3, 4), "per angle": (1, 3, 4, count)}[steps]
    phases = drawn_phases(*shape)
    x = features(2, 3, 4, 6, seed=1)
    full = (phases if phases.ndim == 4 else phases[..., None]).expand(2, 3, 4, count)
    assert_close(encode(x, table=encode.phase_table(phases, x.dtype)), expected(encode, x, full), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["type1", "type2", "fourier*unitary"])
def test_grouped_queries_take_the_steps_of_their_key_head(name):
    encode = make(name, 6)
    q, phases = features(2, 6, 4, 6, dtype=torch.float32), drawn_phases(2, 3, 4)
    grouped = encode.query(q, encode.phase_table(phases))
    assert_close(grouped, encode.query(q, encode.phase_table(phases.repeat_interleave(2, 1))))
    assert_close(encode.query(q.transpose(1, 2), encode.phase_table(phases), layout="bnhd"), grouped.transpose(1, 2))


def phased(name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float64):
    """Encoded rows as a function of phases and α, and inputs for it."""
    encode = make(name, 4, heads=3, learned_angles=True, learned_basis=False).double()
    x = features(2, 3, 3, 4)
    learned = dict(encode.named_parameters())

    class Turn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = encode

        def forward(self, phases):
            table = self.encode.phase_table(phases, dtype)
            return self.encode(x.to(dtype), table=table)

    def apply(phases, *values):
        state = {f"encode.{key}": value for key, value in zip(learned, values, strict=True)}
        return torch.func.functional_call(Turn(), state, (phases,))

    values = tuple(p.detach().clone().requires_grad_() for p in learned.values())
    return apply, (drawn_phases(*shape).requires_grad_(), *values)


@pytest.mark.parametrize("name", ["type1", "type2"])
@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 3, 3), (2, 3, 3, -1)], ids=["shared", "per head", "per angle"])
def test_gradients_in_phases_and_angles_are_those_of_finite_differences(name, shape):
    shape = tuple(make(name, 4).angle_count if size == -1 else size for size in shape)
    apply, inputs = phased(name, shape)
    assert gradcheck(apply, inputs)
    assert gradgradcheck(apply, inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["type1", "type2"])
def test_gradients_in_float32_are_those_of_float64(name):
    grads = {}
    for dtype in (torch.float32, torch.float64):
        apply, inputs = phased(name, (2, 3, 3), dtype)
        grads[dtype] = torch.autograd.grad(apply(*inputs).pow(3).sum(), inputs)
    assert_close(grads[torch.float32], grads[torch.float64], rtol=1e-5, atol=1e-5)


def test_derivatives_taken_forward_and_by_transforms_are_those_taken_backward():
    apply, (phases, alpha, *_) = phased("type2", (2, 3, 3))
    phases, alpha = phases.detach(), alpha.detach()
    direction = features(2, 3, 3, seed=5)
    with forward_ad.dual_level():
        _, pushed = forward_ad.unpack_dual(apply(forward_ad.make_dual(phases, direction), alpha))
    jacobian = torch.autograd.functional.jacobian(lambda p: apply(p, alpha), phases)
    assert_close(pushed, (jacobian * direction).sum((-3, -2, -1)))
    assert_close(torch.func.jacrev(apply)(phases, alpha), jacobian)


def test_a_million_steps_lose_nothing_in_float32():
    matrix = Unitary(2, Angles([1.0, 0.1]))
    steps = 1 + 0.5 * torch.sin(torch.arange(10**6, dtype=torch.float64))
    phases = steps.cumsum(0)[None, None, -50:]
    (turns,) = matrix.phase_table(phases, torch.float32)
    angle = phases[..., None] * torch.tensor([1.0, 0.1], dtype=torch.float64)
    assert angle.max() > 9e5
    assert turns.dtype == torch.float32
    assert_close(turns.double(), torch.cat([angle.cos(), angle.sin()], -1), rtol=0, atol=2e-6)


def test_half_precision_rows_are_turned_in_float32():
    encode = make("type2", 8)
    x, phases = features(2, 3, 4, 8, dtype=torch.bfloat16), drawn_phases(2, 3, 4).float()
    turned = encode(x, table=encode.phase_table(phases, x.dtype))
    assert turned.dtype == torch.bfloat16
    assert_close(turned, encode(x.float(), table=encode.phase_table(phases)).bfloat16())


def test_a_device_without_float64_gets_its_table_from_the_cpu():
    phases = drawn_phases(2, 3, 4)
    fixed = Orthogonal(6).phase_table(phases)
    LACK_FLOAT64.add("cpu")
    try:
        assert_close(Orthogonal(6).phase_table(phases), fixed)
    finally:
        LACK_FLOAT64.discard("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["type1", "type2"])
def test_one_compiled_graph_has_the_gradients_of_eager_mode(name):
    torch.compiler.reset()
    encode = make(name, 8, learned_angles=True)
    x, steps = features(2, 6, 5, 8, dtype=torch.float32), features(2, 3, 5, dtype=torch.float32).requires_grad_()

    def loss(steps):
        return encode(x, table=encode.phase_table(steps.double().cumsum(-1), x.dtype)).pow(3).sum()

    inputs = (steps, encode.matrix.angles.log_alpha)  # type: ignore[union-attr]
    found = [torch.autograd.grad(run(steps), inputs) for run in (torch.compile(loss, fullgraph=True), loss)]
    assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_the_number_of_angles_is_known():
    assert [make(name, 6).angle_count for name in ("type1", "type2", "type3", "spe")] == [6, 3, None, None]


@pytest.mark.parametrize("name", ["type3", "per", "identity*permutation"])
def test_a_permutation_has_no_real_powers(name):
    with pytest.raises(LrpeError, match=r"integers s only.*Use Unitary"):
        make(name, 6).phase_table(torch.zeros(1, 1, 4))


def test_an_alternating_part_and_a_grid_have_no_real_powers():
    grid = make("type2", 8, axes=2)
    for encode in (Encoding(Identity(6), Orthogonal(6, alternating=2)), grid):
        with pytest.raises(LrpeError, match="integers s only"):
            encode.phase_table(torch.zeros(1, 1, 4))


def test_spe_takes_no_steps():
    with pytest.raises(LrpeError, match="only an Encoding with angles has; got StochasticEncoding"):
        make("spe", 6).phase_table(torch.zeros(1, 1, 4))


@given(shape=st.sampled_from([(4,), (1, 4), (1, 1, 4, 2), (1, 1, 4, 1), (1, 1, 1, 4, 3)]))
def test_phases_of_another_shape_are_refused(shape):
    with pytest.raises(LrpeError, match=r"phases must have shape .* count=3; got"):
        Orthogonal(6).phase_table(torch.zeros(shape))


def test_phases_are_real_and_have_the_heads_of_the_angles():
    with pytest.raises(LrpeError, match="phases must hold real"):
        Orthogonal(6).phase_table(torch.arange(4).reshape(1, 1, 4))
    with pytest.raises(LrpeError, match=r"1 head or α's 2 heads .* got \(1, 3, 4\)"):
        Orthogonal(6, Angles(torch.ones(2, 3))).phase_table(torch.zeros(1, 3, 4))


def test_rows_without_heads_cannot_take_steps_per_head():
    encode = Encoding(Householder(6, seed=0), Unitary(6))
    table = encode.phase_table(torch.zeros(1, 3, 4))
    with pytest.raises(LrpeError, match=r"table has 3 heads.*got \(2, 4, 6\)"):
        encode(torch.zeros(2, 4, 6), table=table)


def test_a_complex_basis_takes_steps_per_head():
    encode = Encoding(Fourier(6), Orthogonal(6))
    x, phases = features(1, 2, 4, 6, dtype=torch.float32), drawn_phases(1, 2, 4)
    apart = [encode(x[:, h], table=encode.phase_table(phases[:, h : h + 1])) for h in range(2)]
    assert_close(encode(x, table=encode.phase_table(phases)), torch.stack(apart, 1))
