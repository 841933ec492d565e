"""SPE: relative in expectation, one noise in evaluation, a new one in training."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.encodings import StochasticEncoding
from tests.encodings.compositions import features, outputs, seeds


def oracle(encode, x, positions, of_query):
    """q̂_r = Σ_i q_i q̄_ir with q̄ = Ω_q z formed explicitly, one head and one position at a time."""
    K, d, R = encode.sines, encode.head_dim, encode.feature_dim
    encoded = torch.zeros(*x.shape[:-1], R, dtype=torch.float64)
    for h in range(encode.heads):
        for i in range(d):
            f = encode.freqs[h, i].double().sigmoid() / 2
            gamma = torch.nn.functional.softplus(encode.gains[h, i].double())
            g = encode.gate[h, i].double().sigmoid()
            noise = encode.noise[h, i].double()  # (2K + 1, R)
            z = noise[: 2 * K] * gamma.repeat_interleave(2)[:, None] / math.sqrt(2 * K)
            for n, position in enumerate(positions.tolist()):
                phase = 2 * math.pi * f * position + (encode.offsets[h, i].double() if of_query else 0)
                omega = torch.stack([phase.cos(), phase.sin()], -1).flatten()
                bar = ((1 - g).sqrt() * (omega @ z) + g.sqrt() * noise[2 * K]) / (R * d) ** 0.25
                encoded[..., h, n, :] += x[..., h, n, i, None] * bar
    return encoded


@settings(max_examples=8)
@given(heads=st.integers(1, 3), dim=st.integers(1, 4), sines=st.integers(1, 3), seed=seeds)
def test_features_are_those_of_the_noise_written_out(heads, dim, sines, seed):
    encode = StochasticEncoding(dim, heads, sines, realizations=5, seed=seed).eval()
    x, s = features(2, heads, 3, dim, seed=seed), torch.tensor([4, -7, 10**4])
    with torch.no_grad():
        q, k = outputs(encode, x, s)
        assert_close(q, oracle(encode, x, s, of_query=True), rtol=0, atol=1e-6)
        assert_close(k, oracle(encode, x, s, of_query=False), rtol=0, atol=1e-6)


def expected_score(encode, q, k, m, n):
    """√(R/d) Σ_i q_i k_i ((1-g_i) Σ_k γ_ik² cos(2πf_ik(m-n) + offset_ik) / 2K + g_i), of one head."""
    f, g = encode.freqs.double().sigmoid() / 2, encode.gate.double().sigmoid()
    gamma = torch.nn.functional.softplus(encode.gains.double())
    waves = gamma**2 * torch.cos(2 * math.pi * f * (m - n) + encode.offsets.double())
    kernel = (1 - g) * waves.sum(-1) / (2 * encode.sines) + g  # (heads, d)
    return math.sqrt(encode.feature_dim / encode.head_dim) * (q * k * kernel[:, None]).sum(-1)


@pytest.mark.parametrize(("m", "n"), [(0, 0), (3, 8), (1000, 990)])
@pytest.mark.parametrize("sines", [1, 4])
def test_the_expected_score_is_the_formula(m, n, sines):
    R = 200_000
    encode = StochasticEncoding(3, 2, sines, realizations=R, seed=1).eval()
    with torch.no_grad():
        encode.freqs.add_(4)  # as fast as they get
        q, k = features(2, 1, 3), features(2, 1, 3, seed=1)
        q_hat = encode.query(q, encode.table(torch.tensor([m]), q.dtype))
        k_hat = encode.key(k, encode.table(torch.tensor([n]), k.dtype))
    products = q_hat * k_hat * R  # each is a draw of the score
    error = products.std(-1) / math.sqrt(R)
    assert ((products.mean(-1) - expected_score(encode, q, k, m, n)).abs() < 5 * error).all()
    size = math.sqrt(R / 3) * q.norm(dim=-1) * k.norm(dim=-1)
    assert (error < 0.01 * size).all()  # so that a formula off by a twentieth would be seen


def test_an_open_gate_forgets_positions_and_a_shut_one_does_not():
    encode, x = StochasticEncoding(4, 2, seed=3).eval(), features(2, 1, 4)
    for gate, same in ((50.0, True), (-50.0, False)):
        with torch.no_grad():
            encode.gate.fill_(gate)
            encode.freqs.fill_(0.0)
            (near, _), (far, _) = (outputs(encode, x, torch.tensor([s])) for s in (0, 101))
        assert torch.allclose(near, far) == same


def test_evaluation_keeps_its_noise_and_training_draws_anew():
    encode, x = StochasticEncoding(4, 2), features(2, 5, 4)
    encode.eval()
    assert_close(outputs(encode, x), outputs(encode, x), rtol=0, atol=0)
    encode.train()
    torch.manual_seed(0)
    first, second = outputs(encode, x)[0], outputs(encode, x)[0]
    assert not torch.allclose(first, second)
    torch.manual_seed(0)
    assert_close(outputs(encode, x)[0], first, rtol=0, atol=0)


def test_queries_and_keys_of_one_table_share_their_noise_in_training():
    encode, x = StochasticEncoding(4, 2).train(), features(2, 5, 4)
    with torch.no_grad():
        encode.offsets.zero_()
    q, k = outputs(encode, x)
    assert_close(q, k)


@given(seed=seeds)
def test_the_seed_decides_the_noise(seed):
    first, again, other = (StochasticEncoding(3, 2, seed=s).state_dict() for s in (seed, seed, seed + 10))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_one_position_at_a_time_sees_what_the_whole_pass_sees():
    encode, x = StochasticEncoding(4, 2).eval(), features(3, 2, 6, 4)
    whole = outputs(encode, x)
    for n in range(6):
        one = outputs(encode, x[:, :, [n]], torch.tensor([n]))
        assert_close(one, tuple(hat[:, :, [n]] for hat in whole))


def test_grouped_queries_use_the_noise_of_their_key_head():
    encode, x = StochasticEncoding(4, 2).eval(), features(3, 6, 5, 4)
    grouped, _ = outputs(encode, x)
    for h in range(6):
        alone = x[:, [h]].expand(3, 2, 5, 4)
        assert_close(grouped[:, h], outputs(encode, alone)[0][:, h // 3])


def test_rows_of_positions_belong_to_the_batch():
    encode, x = StochasticEncoding(4, 3).eval(), features(3, 3, 5, 4)
    s = torch.randint(-99, 99, (3, 5), generator=torch.Generator().manual_seed(0))
    batch = outputs(encode, x, s)
    for b in range(3):
        assert_close(tuple(hat[b] for hat in batch), outputs(encode, x[b], s[b]))


def test_everything_but_the_noise_is_learned():
    encode, x = StochasticEncoding(4, 2, sines=2), features(2, 5, 4)
    q, k = outputs(encode, x)
    (q @ k.mT).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in encode.named_parameters()}
    assert set(gradients) == {"freqs", "offsets", "gains", "gate"}
    assert all(gradient is not None and (gradient != 0).all() for gradient in gradients.values())


def test_sizes_below_one_and_other_widths_are_refused():
    with pytest.raises(LrpeError, match="'sines': 0"):
        StochasticEncoding(4, 2, sines=0)
    encode = StochasticEncoding(4, 2)
    with pytest.raises(LrpeError, match=r"head_dim=4; got \(2, 3, 5\)"):
        outputs(encode, torch.ones(2, 3, 5))
    with pytest.raises(LrpeError, match=r"2 heads.*got \(3, 5, 4\)"):
        outputs(encode, torch.ones(3, 5, 4))
    with pytest.raises(LrpeError, match=r"torch.float32"):
        encode.table(torch.arange(3.0))
