"""Members by name, each against its own formula written out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Encoding, LrpeError, configure, encoding, positions, verify
from tests.encodings.compositions import features, make, near, seeds

few = settings(max_examples=10)
ROTATIONS = ("type1", "type2", "rope", "pope", "fourier*unitary", "fourier*orthogonal")


def turned(name: str, dim: int = 6, **changes) -> Encoding:
    """An encoding in float64 whose phases δ and other parameters are away from where they start."""
    encode = make(name, dim, **{"key_phase": True} | changes).double()
    with torch.no_grad():
        for i, parameter in enumerate(encode.parameters()):
            parameter += 0.3 * features(*parameter.shape, seed=i)
    return encode


def score(encode: Encoding, q: torch.Tensor, k: torch.Tensor, s: int, t: int) -> torch.Tensor:
    """The score of a query at s and a key at t."""
    at = [encode.table(torch.tensor([place]), q.dtype) for place in (s, t)]
    return (encode.query(q, at[0]) * encode.key(k, at[1])).sum(-1)


@few
@given(dim=st.integers(1, 9), s=near, t=near, seed=seeds)
def test_pope_sums_softplus_times_cosines_with_a_phase_of_the_key(dim, s, t, seed):
    encode = turned("pope", dim)
    q, k = features(1, dim, seed=seed), features(1, dim, seed=seed + 1)
    sp = torch.nn.functional.softplus
    alpha = 10000.0 ** (-torch.arange(dim, dtype=torch.float64) / dim)
    expected = (sp(q) * sp(k) * torch.cos((t - s) * alpha + encode.matrix.angles.delta)).sum(-1)
    assert_close(score(encode, sp(q), sp(k), s, t), expected, rtol=0, atol=1e-9)


@few
@given(pairs=st.integers(1, 8), length=st.integers(1, 4000), s=near, t=near, seed=seeds)
def test_hope_does_not_rotate_pairs_that_make_no_turn_within_the_length(pairs, length, s, t, seed):
    q, k = (features(1, 2 * pairs, seed=seed + i) for i in (0, 1))
    alpha = [10000 ** (-i / pairs) for i in range(pairs)]
    alpha = torch.tensor([a if a >= 2 * math.pi / length else 0.0 for a in alpha], dtype=torch.float64)
    z, w = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k))
    expected = (z.conj() * w * torch.exp(1j * (t - s) * alpha)).real.sum(-1)
    assert_close(score(encoding("hope", 2 * pairs, length=length), q, k, s, t), expected, rtol=0, atol=1e-9)


@few
@given(pairs=st.integers(1, 8), share=st.floats(0, 1), s=near, t=near, seed=seeds)
def test_p_rope_keeps_ropes_fastest_pairs_and_leaves_the_slowest_alone(pairs, share, s, t, seed):
    q, k = (features(1, 2 * pairs, seed=seed + i) for i in (0, 1))
    kept = math.ceil(share * pairs)
    alpha = torch.tensor([10000 ** (-i / pairs) if i < kept else 0.0 for i in range(pairs)], dtype=torch.float64)
    z, w = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k))
    expected = (z.conj() * w * torch.exp(1j * (t - s) * alpha)).real.sum(-1)
    assert_close(score(encoding("p-rope", 2 * pairs, rotated_share=share), q, k, s, t), expected, rtol=0, atol=1e-9)


def test_the_slowest_angles_are_those_of_least_value_in_whatever_order():
    assert (encoding("p-rope", 8, angles="linear", length=9).matrix.angles.alpha > 0).tolist() == [False, *3 * [True]]


@few
@given(axes=st.sampled_from([2, 3]), pairs=st.integers(2, 5), seed=seeds, s=st.lists(near, min_size=6, max_size=6))
def test_mixed_turns_each_pair_by_its_own_vector_times_the_position(axes, pairs, seed, s):
    encode = turned("mixed", 2 * pairs, axes=axes, key_phase=False)
    angles = encode.matrix.angles
    q, k = (features(1, 2 * pairs, seed=seed + i) for i in (0, 1))
    a, b = torch.tensor(s[:axes]), torch.tensor(s[-axes:])
    vectors = angles.alpha * angles.directions / angles.directions.norm(dim=0)
    z, w = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k))
    expected = (z.conj() * w * torch.exp(1j * ((b - a).double() @ vectors))).real.sum(-1)
    found = (encode(q, a[None]) * encode(k, b[None])).sum(-1)
    assert_close(found, expected, rtol=0, atol=1e-9)


def test_mixed_angles_along_one_axis_each_are_the_axial_grid():
    mixed, axial = encoding("mixed", 8, axes=2, learned_angles=False), encoding("rope", 8, axes=2)
    with torch.no_grad():
        mixed.matrix.angles.directions.copy_(torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]))
        mixed.matrix.angles.alpha.copy_(torch.cat([part.angles.alpha for part in axial.matrix.parts]))
    x, cells = features(6, 8), positions.grid(2, 3)
    assert_close(mixed(x, cells), axial(x, cells))


def test_mixed_angles_learn_their_lengths_and_directions():
    encode = encoding("mixed", 8, axes=2, seed=0)
    encode(features(6, 8, dtype=torch.float32), positions.grid(2, 3)).pow(3).sum().backward()
    assert all(p.grad.abs().min() > 0 for p in encode.parameters())
    assert {name.rpartition(".")[2] for name, _ in encode.named_parameters()} == {"log_alpha", "directions"}
    heads = encoding("mixed", 8, axes=3, heads=2, seed=0)
    assert heads.matrix.angles.directions.shape == (2, 3, 4)
    assert verify(heads)


@few
@given(s=near, t=near, seed=seeds)
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("name", ROTATIONS)
def test_a_phase_of_the_key_is_a_fixed_unitary_matrix_beside_the_rotation(name, heads, s, t, seed):
    encode = turned(name, 6, heads=heads)
    q, k = features(3, 1, 6, seed=seed), features(3, 1, 6, seed=seed + 1)
    P, D = encode.basis.dense().to(torch.complex128), encode.matrix.dense_key_phase()
    W = P.mH @ encode.matrix.dense(t - s) @ D @ P
    expected = (q.to(W.dtype) @ W @ k.to(W.dtype).mT).real[..., 0]
    assert_close(score(encode, q, k, s, t), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_phase_of_the_key_starts_at_0_and_has_a_gradient(name):
    encode, plain = make(name, 6, key_phase=True), make(name, 6, key_phase=False)
    q, k = (features(2, 1, 5, 6, seed=i, dtype=torch.float32) for i in (0, 1))
    table = encode.table(torch.arange(5))
    assert_close(encode.key(k, table), plain(k))
    (encode.query(q, table) @ encode.key(k, table).mT).pow(2).sum().backward()
    assert encode.matrix.angles.delta.grad.abs().min() > 0


def test_an_encoding_saved_without_a_phase_loads_and_one_with_a_phase_keeps_it():
    saved = turned("pope")
    again = make("pope", 6).double()
    again.load_state_dict(saved.state_dict())
    assert_close(again.matrix.angles.delta, saved.matrix.angles.delta, rtol=0, atol=0)
    assert not any(name.endswith("delta") for name in make("type1").state_dict())


@pytest.mark.parametrize(
    ("name", "changes"),
    [(name, {}) for name in ROTATIONS]
    + [("type2", {"heads": 3, "alternating": 2}), ("mixed", {"axes": 2}), ("type1", {"axes": 3})],
)
def test_verify_measures_the_phase_of_the_key(name, changes):
    report = verify(turned(name, 6, **changes))
    assert report
    assert [law.equation for law in report.laws if law.name == "Key phase"] == ["M_{s+c}ᴴ M_{t+c} D = M_sᴴ M_t D"]


def test_verify_rejects_keys_that_turn_by_another_phase_than_theirs():
    encode = turned("rope")
    honest = encode.matrix.key_table
    encode.matrix.key_table = lambda table: honest(honest(table))  # type: ignore[method-assign]
    assert not verify(encode)


@pytest.mark.parametrize("name", ["retnet", "lrpe-d"])
def test_a_member_that_adds_a_decay_has_the_encoding_that_it_is_made_of(name):
    assert configure(name, 8) == configure({"retnet": "rope", "lrpe-d": "type2"}[name], 8)


def test_mixed_along_a_sequence_is_the_half_rotation_under_its_old_name():
    with pytest.warns(DeprecationWarning, match="now called 'half-rotated'"):
        old = configure("mixed", 8)
    assert old == configure("half-rotated", 8)
    assert configure("mixed", 8, axes=2).mixed_axes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: encoding("p-rope", 8, rotated_share=1.5), "rotated_share must be from 0 to 1; got rotated_share=1.5"),
        (lambda: encoding("hope", 8), "angles='hope' needs the longest length"),
        (lambda: encoding("type3", 8, axes=2, mixed_axes=True), "mixed_axes needs angles.*matrix='permutation'"),
        (lambda: encoding("mixed", 8, axes=2, alternating=2), "alternating must be 0 for mixed angles"),
        (lambda: encoding("mixed", 8, axes=2, steps="head"), "steps='head' needs a Λ of Type 1 or 2"),
        (lambda: encoding("pope", 8, key_phase=0.5), "key_phase of an encoding cannot be a float"),
    ],
)
def test_what_a_member_cannot_be_is_refused(call, says):
    with pytest.raises(LrpeError, match=says):
        call()
