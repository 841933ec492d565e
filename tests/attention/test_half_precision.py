"""Half precision in, half precision out, and float32 in between; under autocast too."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, Quadratic, linear_attention
from tests.attention.choices import NORMALIZERS, SOME, WIDTH, Choice
from tests.attention.routes import CAUSAL, recording
from tests.encodings.compositions import features

HALF = [torch.bfloat16, torch.float16]


def rounding(dtype):
    return torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("how", [Causal(4), Bidirectional(4), Quadratic()], ids=lambda how: type(how).__name__)
@pytest.mark.parametrize("decay", [None, [0.9, 0.99]])
def test_the_sums_of_half_precision_vectors_are_rounded_once(how, decay, dtype):
    """With φ = identity nothing is rounded before the sum, and so only the result is."""
    q, k, v = (features(1, 2, 33, 4, seed=i, dtype=dtype).abs() for i in range(3))
    options = {"encoding": "none", "feature_map": "identity", "summation": how, "decay": decay}
    found, state = linear_attention(q, k, v, **options)
    exact, exact_state = linear_attention(q.float(), k.float(), v.float(), **options)
    assert found.dtype == dtype
    assert_close(found.float(), exact, rtol=0.51 * rounding(dtype), atol=1e-5)
    if state is not None:
        assert state.S.dtype == state.z.dtype == torch.float32
        assert_close(state, exact_state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("choice", SOME, ids=str)
def test_a_half_precision_layer_stays_within_its_rounding_of_float32(choice, dtype):
    layer, exact = recording(choice.build(Causal(4), dtype)), recording(choice.build(Causal(4), torch.float32))
    exact.load_state_dict({key: value.float() for key, value in layer.state_dict().items()})
    texts = [features(1, n, WIDTH, seed=n, dtype=dtype) for n in (1, 9)]
    with torch.no_grad():
        expected = CAUSAL[0](exact, [x.float() for x in texts])
        size = expected.numerator.abs().amax()
        for route in CAUSAL:
            found = route(layer, texts)
            assert found.y.dtype == dtype
            assert_close(found.numerator.float(), expected.numerator, rtol=0, atol=8 * rounding(dtype) * size.item())
            if found.S is not None:
                assert found.S.dtype == found.z.dtype == torch.float32
            if choice.normalizer != "encoded":
                assert_close(found.y.float(), expected.y, rtol=0, atol=12 * rounding(dtype))


def test_a_float16_sum_beyond_its_range_is_normalised_before_it_is_rounded():
    x = torch.ones(1, 1, 3000, 64, dtype=torch.float16)  # scores of 256: their sum exceeds 65504 after 256 tokens
    for summation in ("causal", "bidirectional", Quadratic()):
        options = {"encoding": "none", "decay": None, "summation": summation}
        assert_close(linear_attention(x, x, x, **options)[0], x)
        for normalizer in ("output", "output-rms"):
            assert linear_attention(x, x, x, **options, normalizer=normalizer)[0].isfinite().all()


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("decay", ["none", "spread"])
@pytest.mark.parametrize("how", [Causal(4), Bidirectional(4)], ids=lambda how: type(how).__name__)
def test_autocast_changes_projections_and_not_sums(how, decay, normalizer):
    layer = Choice("type2", normalizer, decay).build(how, torch.float32)
    x = features(2, 20, WIDTH, dtype=torch.float32).requires_grad_()
    exact = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        y.float().square().sum().backward()  # inside, where autocast would reach the gradient's products
    assert y.dtype == torch.bfloat16
    assert x.grad is not None
    assert x.grad.isfinite().all()
    if normalizer != "encoded":
        assert_close(y.float(), exact, rtol=0, atol=0.05)


def test_under_autocast_a_state_is_float32_and_a_step_agrees_with_the_whole():
    layer, x = Choice("type2", "plain", "spread").build(Causal(4), torch.float32), features(2, 9, WIDTH).float()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        whole = layer(x)
        _, state = layer.prefill(x[:, :8])
        y, state = layer.step(x[:, 8], state)
    assert state.S.dtype == state.z.dtype == torch.float32
    assert_close(y, whole[:, 8], rtol=0, atol=0.01)


@pytest.mark.parametrize("how", [Causal(4), Bidirectional(4), Quadratic()], ids=lambda how: type(how).__name__)
def test_under_autocast_float32_vectors_are_summed_in_float32(how):
    q, k, v = (features(1, 2, 20, 4, seed=i).float().requires_grad_() for i in range(3))

    def results():
        out, _ = linear_attention(q, k, v, "none", summation=how, decay=[0.9, 0.5])
        wanted = () if isinstance(how, Quadratic) else (q, k, v)  # whose products autograd itself makes
        return out, *(torch.autograd.grad(out.square().sum(), wanted) if wanted else ())

    expected = results()
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(results(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["exp", "relu2", "favor+"])
def test_features_beyond_the_range_of_half_precision_are_summed_as_float32_would(name, dtype):
    """eˣ of 4·N(0, 1) exceeds 65504, and random features fall below 6·10⁻⁸."""
    size = {"exp": 4.0, "relu2": 400.0, "favor+": 4.0}[name]
    q, k, v = ((size * features(1, 2, 40, 8, seed=i)).to(dtype).requires_grad_() for i in range(3))
    options = {"encoding": "none", "feature_map": name, "normalizer": "plain"}
    for summation in ("causal", "bidirectional"):
        found, _ = linear_attention(q, k, v, **options, summation=summation)
        gradients = torch.autograd.grad(found.float().sum(), (q, k, v))
        exact, _ = linear_attention(q.float(), k.float(), v.float(), **options, summation=summation)
        assert found.dtype == dtype
        assert_close(found.float(), exact, rtol=2 * rounding(dtype), atol=1e-3 * size)
        assert all(gradient.isfinite().all() for gradient in gradients)
