"""Longer texts: the ratios are those of transformers, and they are configuration, not state."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lrpe import Angles, Encoding, Identity, LrpeError, Orthogonal, encoding
from lrpe.encodings import Interpolation, NTKAware, YaRN
from lrpe.encodings.angles import geometric
from tests.encodings.compositions import features

factors = st.floats(1, 64)
bases = st.sampled_from([500.0, 10000.0, 500000.0])


def theirs(kind, dim, base, length, seq_len=None, **parameters):
    config = LlamaConfig(
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=length,
        rope_parameters={"rope_type": kind, "rope_theta": base, **parameters},
    )
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=seq_len)


def ours(dim, base, scaling):
    encode = encoding("rope", dim, base=base, scaling=scaling)
    return encode.matrix.angles.scaled().flatten().float(), encode.score_scale


@given(pairs=st.integers(2, 64), factor=factors, base=bases)
def test_interpolation_is_transformers_linear(pairs, factor, base):
    alpha, attention = theirs("linear", 2 * pairs, base, 2048, factor=factor)
    assert_close(
        ours(2 * pairs, base, {"kind": "interpolation", "factor": factor}),
        (alpha, attention**2),
        rtol=2e-6,
        atol=0,
    )


@given(pairs=st.integers(2, 64), factor=factors, base=bases)
def test_ntk_aware_is_transformers_dynamic_at_its_length(pairs, factor, base):
    alpha, attention = theirs("dynamic", 2 * pairs, base, 2048, seq_len=4096, factor=factor)
    lengthened = {"kind": "ntk", "factor": 2 * factor - (factor - 1)}  # theirs is f·n/m - (f-1) at n = 2m
    assert_close(ours(2 * pairs, base, lengthened), (alpha, attention**2), rtol=1e-5, atol=0)


@given(pairs=st.integers(2, 64), factor=factors, base=bases, length=st.integers(256, 10**5))
def test_yarn_is_transformers_with_the_square_of_its_attention_factor(pairs, factor, base, length):
    alpha, attention = theirs("yarn", 2 * pairs, base, length, factor=factor, original_max_position_embeddings=length)
    alpha_ours, score_scale = ours(2 * pairs, base, {"kind": "yarn", "factor": factor, "length": length})
    assert_close(alpha_ours, alpha, rtol=1e-5, atol=0)
    assert score_scale == pytest.approx(attention**2)


def test_yarn_takes_other_bounds():
    bounds = {"beta_fast": 16.0, "beta_slow": 2.0}
    alpha, _ = theirs("yarn", 64, 10000.0, 4096, factor=8.0, original_max_position_embeddings=4096, **bounds)
    ours_alpha, _ = ours(64, 10000.0, {"kind": "yarn", "factor": 8.0, "length": 4096, "fast": 16.0, "slow": 2.0})
    assert_close(ours_alpha, alpha, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["type1", "type2"])
@pytest.mark.parametrize("kind", [{"kind": "interpolation"}, {"kind": "ntk"}, {"kind": "yarn", "length": 64}])
def test_scaling_is_configuration_that_an_unscaled_checkpoint_does_not_undo(name, kind):
    trained = encoding(name, 8, heads=2)
    with torch.no_grad():
        trained.matrix.angles.log_alpha.add_(0.5)
    longer = encoding(name, 8, heads=2, scaling=kind | {"factor": 4.0})
    longer.load_state_dict(trained.state_dict())
    angles = longer.matrix.angles
    ratios = angles.scaling.ratios(angles.count, angles.dim, angles.base)
    assert ratios.min() == pytest.approx(1 / 4)
    assert_close(angles.scaled()[:, 0], trained.matrix.angles.alpha.double() * ratios)
    assert not torch.allclose(longer(features(2, 9, 8)), trained(features(2, 9, 8)))


def test_interpolation_lays_positions_closer():
    x = features(5, 8)
    longer = encoding("rope", 8, scaling={"kind": "interpolation", "factor": 4.0})
    assert_close(longer(x, 4 * torch.arange(5)), encoding("rope", 8)(x))


def test_a_scaled_angle_can_still_be_learned():
    encode = encoding("type2", 8, scaling={"kind": "interpolation", "factor": 4.0}).double()
    angles = encode.matrix.angles
    (gradient,) = torch.autograd.grad(angles(torch.tensor([[8]])).sum(), angles.log_alpha)
    assert_close(gradient, 2.0 * angles.alpha)  # ∂(8·α/4) / ∂log α


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: Interpolation(0.5), "factor=0.5"),
        (lambda: NTKAware(0.0), "factor=0.0"),
        (lambda: YaRN(2.0, length=0), "length=0"),
        (lambda: YaRN(2.0, length=512, fast=1.0, slow=2.0), "fast=1.0, slow=2.0"),
        (lambda: encoding("rope", 8, scaling={"kind": "yarm", "factor": 2.0}), "'yarn'"),
        (lambda: encoding("rope", 8, scaling={"kind": "yarn", "factor": 2.0}), "length"),
        (lambda: encoding("rope", 8, scaling={"kind": "ntk", "facter": 2.0}), "'factor'"),
        (lambda: encoding("rope", 8, scaling={"factor": 2.0}), "interpolation, ntk, yarn"),
    ],
)
def test_a_scaling_that_cannot_be_is_refused(make, value):
    with pytest.raises(LrpeError) as error:
        make()
    assert value in str(error.value)


def test_the_temperature_comes_with_the_angles_however_the_encoding_is_made():
    scaling = YaRN(4.0, 2048)
    by_hand = Encoding(Identity(8), Orthogonal(8, Angles(geometric(4, 8), scaling=scaling)))
    by_name = encoding("rope", 8, scaling=scaling)
    assert by_hand.score_scale == by_name.score_scale == scaling.score_scale > 1
    assert encoding("type3", 8, scaling=scaling).score_scale == 1


@pytest.mark.parametrize("angles", ["linear", "harmonic", "constant"])
def test_scalings_of_a_geometric_series_refuse_other_angles(angles):
    with pytest.raises(LrpeError, match="geometric"):
        encoding("rope", 8, angles=angles, length=64, scaling={"kind": "ntk", "factor": 4.0})
    assert encoding("rope", 8, angles=angles, length=64, scaling={"kind": "interpolation", "factor": 4.0})
