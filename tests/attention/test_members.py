"""Members by name as whole layers: encoding, feature map, normaliser and decay, each against its formula."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from lrpe import LinearAttention, LrpeError, SoftmaxAttention, encoding, linear_attention, verify
from lrpe.attention import SharedSteps, StepDecay, retnet_decay
from lrpe.attention.choices import MEMBERS
from lrpe.encodings.family import BASELINES, FAMILY
from lrpe.models import LrpeConfig
from tests.encodings.compositions import features

WIDTH, HEADS, N = 12, 2, 7
D = WIDTH // HEADS


def layer_of(name: str, **changes) -> LinearAttention:
    """A layer in float64 with all parameters away from where they start."""
    torch.manual_seed(0)
    layer = LinearAttention(WIDTH, HEADS, name, **changes).double().eval()
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter += 0.2 * features(*parameter.shape, seed=i)
    return layer


def heads_of(layer: LinearAttention, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return q, k and v, (heads, n, d), of one text x (n, width)."""
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    return tuple(project(x).unflatten(-1, (HEADS, D)).transpose(0, 1) for project in projections)


def rms(layer: LinearAttention, sums: torch.Tensor) -> torch.Tensor:
    """Return RMSNorm of each head's sums (heads, n, d), joined and projected."""
    norm = layer.normalizer.norm
    scaled = sums * (sums.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight
    return layer.o_proj(scaled.transpose(0, 1).flatten(1))


def rotated(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.exp(1j * angle)


def test_retnet_is_rope_times_a_power_of_its_decay_then_a_norm_per_head():
    layer, x = layer_of("retnet"), features(N, WIDTH)
    q, k, v = heads_of(layer, x)
    t = torch.arange(N, dtype=torch.float64)
    angle = t[:, None] * torch.tensor([10000 ** (-i / 3) for i in range(3)])
    scores = (rotated(q, angle).conj() @ rotated(k, angle).mT).real
    gamma = torch.tensor([1 - 2 ** (-5), 1 - 2 ** (-6)], dtype=torch.float64)
    weights = scores * (gamma[:, None, None] ** (t[:, None] - t)).tril()
    assert_close(layer(x[None])[0], rms(layer, weights @ v), rtol=1e-6, atol=1e-6)  # the layer keeps r in float32


def test_lrpe_d_decays_by_layer_and_head_and_has_swish():
    config = LrpeConfig(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=4, encoding="lrpe-d")
    for layer in range(4):
        expected = [math.exp(-(8 * h / HEADS) * (1 - layer / 4)) for h in (1, 2)]
        assert config.layer_decay(layer) == pytest.approx(expected)
    assert (config.feature_map, config.normalizer) == ("silu", "output-rms")
    assert layer_of("lrpe-d").phi is F.silu


def test_pope_has_softplus_and_no_decay():
    layer, x = layer_of("pope"), features(N, WIDTH)
    q, k, v = (F.softplus(part) if i < 2 else part for i, part in enumerate(heads_of(layer, x)))
    t = torch.arange(N, dtype=torch.float64)
    alpha = torch.tensor([10000 ** (-i / D) for i in range(D)], dtype=torch.float64)
    cosines = torch.cos((t - t[:, None])[..., None] * alpha + layer.encoding.matrix.angles.delta)
    weights = torch.einsum("htd,hsd,tsd->hts", q, k, cosines).tril()
    sums = weights @ v / (q @ k.mT).tril().sum(-1, keepdim=True)
    assert_close(layer(x[None])[0], layer.o_proj(sums.transpose(0, 1).flatten(1)))


def test_mamba3_turns_and_decays_by_one_delta_per_token():
    layer, x = layer_of("mamba3"), features(N, WIDTH)
    q, k, v = heads_of(layer, x)
    delta = F.softplus(x @ layer.steps.delta_weight.mT + layer.steps.delta_bias)  # (n, heads)
    a = (x @ layer.steps.weight.mT).unflatten(-1, (HEADS, D // 2))
    theta, log_r = torch.zeros(HEADS, D // 2, dtype=torch.float64), torch.zeros(HEADS, dtype=torch.float64)
    thetas, sums_of_log_r = [], []
    for t in range(N):
        theta = theta + math.pi * a[t].tanh() * delta[t, :, None]
        log_r = log_r - layer.decay.log_rate.exp() * delta[t]
        thetas.append(theta)
        sums_of_log_r.append(log_r)
    angle, c = torch.stack(thetas, 1), torch.stack(sums_of_log_r, 1)
    scores = (rotated(q, angle).conj() @ rotated(k, angle).mT).real
    weights = scores * (c[:, :, None] - c[:, None]).exp().tril()
    assert_close(layer(x[None])[0], rms(layer, weights @ v))


@pytest.mark.parametrize("name", ["mamba3", "retnet", "lrpe-d", "pope", "p-rope"])
def test_members_decode_token_by_token_pack_and_ignore_padding(name):
    layer, x = layer_of(name), features(2, N, WIDTH)
    whole = layer(x)
    first, state = layer.prefill(x[:, :3])
    steps = []
    for t in range(3, N):
        y, state = layer.step(x[:, t], state)
        steps.append(y)
    assert_close(torch.cat([first, torch.stack(steps, 1)], 1), whole)
    packed = layer(x.reshape(1, 2 * N, WIDTH), cu_seqlens=torch.tensor([0, N, 2 * N]))
    assert_close(packed.reshape(2, N, WIDTH), whole)
    padded = torch.cat([torch.full((2, 2, WIDTH), math.nan, dtype=x.dtype), x], 1)
    assert_close(layer(padded, mask=torch.arange(N + 2).expand(2, -1) >= 2)[:, 2:], whole)


def test_every_parameter_of_mamba3_has_a_gradient():
    layer = layer_of("mamba3")
    layer(features(2, N, WIDTH)).pow(2).sum().backward()
    own = {name: p for name, p in layer.named_parameters() if name.startswith(("steps", "decay"))}
    assert set(own) == {"steps.weight", "steps.delta_weight", "steps.delta_bias", "decay.log_rate"}
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in own.values())


def test_mamba3_starts_with_the_spread_decay_and_without_rotation():
    layer, x = LinearAttention(WIDTH, HEADS, "mamba3").double(), features(1, N, WIDTH)
    log_r, u = layer.log_decay_and_steps(x)
    assert_close(log_r.exp()[0, :, 0], torch.tensor([0.75, 1 - 2**-3.5], dtype=torch.float64), rtol=1e-6, atol=0)
    assert u.abs().max() == 0


def test_verify_accepts_mamba3s_steps_and_decay():
    steps, decay = SharedSteps(5, 1, 3).double(), StepDecay(1).double()
    torch.nn.init.normal_(steps.weight)
    torch.nn.init.normal_(steps.delta_weight)
    assert verify(
        encoding("mamba3", 6),
        steps=lambda x: steps(x[None])[0, 0],
        log_decay=lambda x: decay(steps.delta(x[None]))[0, 0],
        dim=5,
    )


def test_softmax_attention_takes_mamba3_with_its_decay_or_without():
    x = features(1, N, WIDTH)
    for decay in (None, "mamba3"):
        layer = SoftmaxAttention(WIDTH, HEADS, "mamba3", decay=decay).double()
        torch.nn.init.normal_(layer.steps.weight)
        _, state = layer.prefill(x[:, : N - 1])
        assert_close(layer.step(x[:, -1], state)[0], layer(x)[:, -1])


def test_a_choice_that_is_made_wins_over_the_published_one():
    layer = layer_of("retnet", decay=None, feature_map="relu", normalizer="plain")
    assert layer.decay is None
    assert type(layer.normalizer).__name__ == "PlainDelta"
    config = LrpeConfig(encoding={"name": "retnet", "base": 500.0}, decay="spread")
    assert (config.feature_map, config.decay) == ("identity", "spread")
    q = features(1, HEADS, 5, 4)
    named = linear_attention(q, q, q, "retnet", decay=None)[0]
    assert_close(named, linear_attention(q, q, q, "rope", "identity", "output-rms-head", decay=None)[0])


def test_an_encoding_with_a_decay_of_its_own_gets_no_other_by_default():
    assert_close(LinearAttention(WIDTH, HEADS, "per").decay.r, torch.sigmoid(torch.tensor([2.0, 3.5])))
    assert LrpeConfig(encoding="per").decay is None


def test_every_member_is_a_named_encoding():
    assert set(MEMBERS) <= {*FAMILY, *BASELINES}
    assert retnet_decay(3) == [1 - 1 / 32, 1 - 1 / 64, 1 - 1 / 128]


@pytest.mark.parametrize("encode", ["type2", "selective-free", "mixed"])
def test_mamba3s_decay_needs_its_steps(encode):
    choice = encoding(encode, D, axes=2) if encode == "mixed" else encode
    with pytest.raises(LrpeError, match=r"decay='mamba3' shares Δ|A decay counts steps along a sequence"):
        LinearAttention(WIDTH, HEADS, choice, decay="mamba3")
