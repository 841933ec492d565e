"""Angles that match a kernel: the error that they reach, and how far a kernel is from positive definite."""

import math

import numpy
import pytest
import torch
from scipy.optimize import nnls

import lrpe
from lrpe import EncodingConfig, LrpeError
from lrpe.theory.kernels import KERNELS, exponential, gaussian, t5, window
from lrpe.theory.matching import _FINENESS, _cosine_sums, _quantiles, matching

LENGTH = 64
REACHED = {  # kernel -> the error of 32 angles over 64 distances, without and with a decay
    "gaussian": (0.005, 0.005),
    "exponential": (0.04, 1e-9),
    "window": (0.14, 0.14),
    "t5": (0.03, 0.02),
}


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_every_named_kernel_is_matched_to_the_stated_error_and_not_below_its_distance(name, decay):
    f = KERNELS[name](8)
    matched = matching(f, 32, LENGTH, decay)
    m = torch.arange(LENGTH, dtype=torch.float64)
    r = 1.0 if matched.decay is None else matched.decay
    residual = r**m * torch.cos(m[:, None] * matched.alpha).mean(1) - f(m)
    assert matched.error == pytest.approx(residual.square().mean().sqrt().item(), rel=1e-6, abs=1e-15)
    assert matched.largest_error == pytest.approx(residual.abs().max().item(), rel=1e-6, abs=1e-15)
    assert matched.distance - 1e-4 <= matched.error <= REACHED[name][decay]
    assert (matched.decay is None) != decay


def test_the_error_decreases_with_the_number_of_angles_at_least_as_one_over_it():
    errors = [matching(gaussian(4), count, LENGTH).error for count in (4, 8, 16, 32)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 8


@pytest.mark.parametrize("seed", range(3))
def test_a_mean_of_cosines_gives_its_own_angles_back(seed):
    generator = torch.Generator().manual_seed(seed)
    start, gaps = torch.rand(7, dtype=torch.float64, generator=generator), 0.4
    alpha = (0.1 + gaps * torch.arange(7) + 0.2 * start).flip(0)
    matched = matching(lambda m: 5 * torch.cos(m[:, None] * alpha).mean(1), 7, LENGTH)
    torch.testing.assert_close(matched.alpha, alpha, rtol=0, atol=1e-6)
    assert matched.error < 1e-6
    assert matched.positive_definite


@pytest.mark.parametrize("width", [1.5, 5, 20])
def test_the_distance_of_a_window_is_that_of_the_best_non_negative_weights(width):
    matched = matching(window(width), 8, 32)
    m, K = numpy.arange(32), 32 * _FINENESS
    f = (m < width).astype(float)
    _, norm = nnls(numpy.cos(numpy.outer(m, numpy.arange(K + 1)) * math.pi / K), f, maxiter=100_000)
    assert matched.distance == pytest.approx(norm / math.sqrt(32), rel=1e-4)
    toeplitz = f[abs(m[:, None] - m)]
    assert matched.lowest_eigenvalue == pytest.approx(numpy.linalg.eigvalsh(toeplitz)[0])
    assert not matched.positive_definite
    assert "not positive definite" in str(matched)


@pytest.mark.parametrize("f", [gaussian(5), exponential(5), lambda m: (1 - m / 9).clamp(min=0)])
def test_a_positive_definite_kernel_has_no_distance(f):
    matched = matching(f, 4, LENGTH)
    assert matched.distance == 0
    assert matched.lowest_eigenvalue > -1e-9
    assert "is positive definite" in str(matched)


@pytest.mark.parametrize("count", [1, 3, 10, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_quantiles_are_within_their_bound_at_every_distance(count, seed):
    """|∫ cos(mω) dμ - (1/n) Σ cos(m α_j)| ≤ πm / 2n, for the density that spreads each weight over its cell."""
    K, length = 64, 50
    weights = torch.rand(K + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) ** 8
    weights = weights / weights.sum()
    m = torch.arange(length, dtype=torch.float64)
    dense = _quantiles(weights, 200_000)
    exact = torch.stack([torch.cos(d * dense).mean() for d in m])
    error = (torch.cos(m[:, None] * _quantiles(weights, count)).mean(1) - exact).abs()
    assert (error <= math.pi * m / 2 / count + math.pi * m / 2 / 200_000 + 1e-12).all()


def test_the_sums_of_cosines_are_those_of_the_formula():
    weights = torch.rand(33, dtype=torch.float64)
    m, k = torch.arange(20, dtype=torch.float64), torch.arange(33, dtype=torch.float64)
    cosines = torch.cos(m[:, None] * k * (math.pi / 32))
    torch.testing.assert_close(_cosine_sums(weights, 20), cosines @ weights, rtol=0, atol=1e-12)


def test_a_table_is_the_function_that_it_tabulates_and_its_scale_does_not_matter():
    values = t5(8)(torch.arange(40.0))
    for table in (3 * values, values.tolist()):
        torch.testing.assert_close(matching(table, 4, 32).alpha, matching(t5(8), 4, 32).alpha, rtol=0, atol=1e-4)


def test_a_t5_table_is_constant_within_the_buckets_of_t5():
    values = t5(8)(torch.arange(200, dtype=torch.float64))
    assert len(values[:16].unique()) == 16
    assert len(values.unique()) == 32
    assert values[16] == values[17] == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["rope", "type1", "type2"])
def test_the_trace_of_an_encoding_with_matched_angles_is_the_mean_of_cosines(name):
    dim = 8
    matched = matching(gaussian(3), dim if name == "type1" else dim // 2, 32)
    config = EncodingConfig.from_json(lrpe.configure(name, dim, seed=0, angles=matched.alpha.tolist()).to_json())
    assert config.angles == tuple(matched.alpha.tolist())
    W = config.build().matrix.dense(5)
    expected = torch.cos(5 * matched.alpha).mean().item()
    assert torch.trace(W).real.item() / dim == pytest.approx(expected, abs=1e-12)


def test_a_model_with_matched_angles_is_saved_and_loaded_with_them(tmp_path):
    from lrpe.models import LrpeConfig, LrpeForCausalLM

    matched = matching(gaussian(3), 4, 32, decay=True)
    config = LrpeConfig(
        **{"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        intermediate_size=16,
        encoding={"name": "type2", "angles": matched.alpha.tolist()},
        decay=[matched.decay or 1.0] * 2,
    )
    LrpeForCausalLM(config).save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path)
    alpha = loaded.model.layers[0].attention.encoding.matrix.angles.alpha
    torch.testing.assert_close(alpha.detach(), matched.alpha, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kernel", "count", "length", "message"),
    [
        (gaussian(2), 0, 8, "count must be a whole number from 1"),
        (gaussian(2), 4, 1, "length must be a whole number from 2"),
        (gaussian(2), 4, 5000, "to 4,096; got length=5000"),
        ([1.0, 0.5], 4, 8, "one value for each of the 8 distances"),
        (lambda m: m[:3], 4, 8, r"one value per distance, of shape \(8,\); got \(3,\)"),
        (lambda m: 1.0, 4, 8, "got float"),
        (lambda m: m, 4, 8, "above 0 at distance 0"),
        (lambda m: 1 / (m - 2), 4, 8, "finite"),
        ("gaussian", 4, 8, "a function of distances or a table"),
    ],
)
def test_a_kernel_that_is_none_is_refused_by_name(kernel, count, length, message):
    with pytest.raises(LrpeError, match=message):
        matching(kernel, count, length)


@pytest.mark.parametrize("width", [0, -1, math.inf, "8"])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(LrpeError, match="width must be a finite number above 0"):
        gaussian(width)


@pytest.mark.parametrize(
    ("angles", "message"), [([1.0, math.nan], "finite"), ([1.0, "b"], "finite numbers"), ([1.0], "4 numbers")]
)
def test_angles_that_are_no_numbers_or_too_few_are_refused(angles, message):
    with pytest.raises(LrpeError, match=message):
        lrpe.encoding("rope", 8, angles=angles)
