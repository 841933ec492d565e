"""Angles are formed in float64, and nothing that defines an encoding falls below float32."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lrpe import Angles
from lrpe.precision import LACK_FLOAT64
from tests.encodings.compositions import EVERY, RELATIVE, features, make, outputs, scores

every = pytest.mark.parametrize("name", EVERY)
relative = pytest.mark.parametrize("name", RELATIVE)
LOW = (torch.bfloat16, torch.float16)


@pytest.fixture
def no_float64():
    """As if this machine's CPU had neither float64 nor complex numbers."""
    LACK_FLOAT64.add("cpu")
    yield
    LACK_FLOAT64.discard("cpu")


@relative
def test_a_float32_score_at_a_million_is_the_score_of_the_difference(name):
    encode = make(name, 64)
    q, k = features(3, 4, 64, dtype=torch.float32), features(3, 4, 64, seed=1, dtype=torch.float32)
    s, t = 10**6 + torch.arange(4), 10**6 - 3 * torch.arange(4)
    P = encode.basis.dense()
    for i, j in ((0, 0), (1, 2), (3, 3)):
        W = P.mH @ encode.matrix.dense(int(t[j] - s[i])) @ P
        exact = (q[:, [i]].to(W.dtype) @ W @ k[:, [j]].to(W.dtype).mT).real[:, 0, 0]
        error = (scores(encode, q, k, s, t)[:, i, j] - exact).abs()
        assert (error <= 1e-6 * q[:, i].norm(dim=-1) * k[:, j].norm(dim=-1)).all()


@every
@pytest.mark.parametrize("dtype", LOW)
def test_low_precision_comes_in_and_goes_out_and_is_not_worked_in(name, dtype):
    encode = make(name, 8).eval()
    x, s = features(2, 3, 5, 8).to(dtype), 10**6 + torch.arange(5)
    exact = outputs(encode, x.float(), s)
    for encoded, reference in zip(outputs(encode, x, s), exact, strict=True):
        assert encoded.dtype == dtype
        assert torch.equal(encoded, reference.to(dtype))  # one rounding, at the end


@every
def test_autocast_does_not_round_what_an_encoding_computes(name):
    encode, x = make(name, 8).eval(), features(2, 3, 5, 8, dtype=torch.float32)
    calls = [lambda: outputs(encode, x)]
    if name != "spe":
        calls += [lambda: encode(x), lambda: encode.basis(x), lambda: encode.matrix(x)]
    expected = [call() for call in calls]
    with torch.autocast("cpu", torch.bfloat16):
        assert_close([call() for call in calls], expected, rtol=0, atol=0)


def tensors(encode):
    return {name: tensor.clone() for name, tensor in encode.state_dict().items()}


@every
@pytest.mark.parametrize("lower", [lambda e: e.to(torch.bfloat16), lambda e: e.half(), lambda e: e.bfloat16()])
def test_what_defines_an_encoding_stays_through_a_cast_of_the_model(name, lower):
    encode = make(name, 8)
    before = tensors(encode)
    lower(torch.nn.Sequential(encode))
    assert_close(tensors(encode), before, rtol=0, atol=0)


@every
@pytest.mark.parametrize("dtype", LOW)
def test_construction_under_a_low_default_dtype_changes_nothing(name, dtype):
    before = tensors(make(name, 8))
    torch.set_default_dtype(dtype)
    try:
        assert_close(tensors(make(name, 8)), before, rtol=0, atol=0)
        assert Angles(torch.ones(4)).alpha.dtype == torch.float64
        assert Angles(torch.ones(4), learned=True).log_alpha.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


@every
@pytest.mark.parametrize("assign", [False, True])
def test_a_bf16_file_does_not_make_a_bf16_encoding(name, assign):
    encode = make(name, 8)
    file = {key: t.bfloat16() if t.is_floating_point() else t for key, t in encode.state_dict().items()}
    encode.load_state_dict(file, assign=assign)
    for key, tensor in encode.state_dict().items():
        assert tensor.dtype in (torch.float32, torch.float64, torch.int64)
        if key != "basis.P":  # a matrix is made unitary again, see test_basis
            assert torch.equal(tensor, file[key].to(tensor.dtype))
    assert {t.dtype for t in file.values()} <= {torch.bfloat16, torch.int64}  # and the file is as it was


CASTS = {
    "float": lambda model: model.float(),
    "half": lambda model: model.half(),
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "double and float": lambda model: model.double().float(),
    "meta and loaded": lambda model: reloaded(model, assign=False),
    "meta and assigned": lambda model: reloaded(model, assign=True),
}


def reloaded(model, assign):
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    model = model.to("meta")
    model = model if assign else model.to_empty(device="cpu")
    model.load_state_dict(state, assign=assign)
    return model


@pytest.mark.parametrize("cast", CASTS)
def test_rope_in_float64_is_its_formula_whatever_the_model_was_cast_to(cast):
    s, x = torch.tensor([10**6, -(10**6), 3]), features(3, 64)
    exact = [[position * 10000.0 ** (-2 * k / 64) for k in range(32)] for position in s.tolist()]
    angle = torch.tensor(exact, dtype=torch.float64)
    expected = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    model = CASTS[cast](torch.nn.Sequential(make("rope", 64)))
    assert_close(model[0](x, s), torch.view_as_real(expected).flatten(-2), rtol=0, atol=1e-9)


@pytest.mark.parametrize("assign", [False, True])
def test_an_alpha_that_was_saved_in_float32_is_loaded_as_it_was_saved(assign):
    encode = make("rope", 64)
    old = {key: tensor.float() for key, tensor in encode.state_dict().items()}
    encode.load_state_dict(old, assign=assign)
    alpha = encode.matrix.angles.alpha
    assert alpha.dtype == torch.float64
    assert torch.equal(alpha, old["matrix.angles.alpha"].double())


@every
def test_double_makes_everything_float64(name):
    encode = make(name, 8).double()
    assert {t.dtype for t in encode.state_dict().values()} <= {torch.float64, torch.int64}


@every
def test_a_device_without_float64_gives_the_same_outputs(name, no_float64):
    x, s = features(2, 3, 5, 8, dtype=torch.float32), 10**6 + torch.arange(5)
    lacking = outputs(make(name, 8).eval(), x, s)
    LACK_FLOAT64.discard("cpu")
    assert_close(lacking, outputs(make(name, 8).eval(), x, s), rtol=0, atol=1e-6)


def test_moving_to_a_device_without_float64_rounds_to_float32(no_float64):
    encode = make("fourier*unitary", 8)
    assert encode.to("cpu").basis.P.dtype == torch.float32


class NoFloat64OnMeta(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                assert tensor.dtype not in (torch.float64, torch.complex64, torch.complex128), func
        return made


@every
def test_construction_on_a_device_without_float64_makes_no_float64_there(name):
    LACK_FLOAT64.add("meta")
    try:
        with NoFloat64OnMeta(), torch.device("meta"):
            encode = make(name, 8)
    finally:
        LACK_FLOAT64.discard("meta")
    elsewhere = {key for key, tensor in encode.state_dict().items() if tensor.device.type != "meta"}
    fixed = {key for key, _ in encode.named_buffers() if key.endswith(("angles.alpha", "angles.start"))}
    assert elsewhere == fixed  # angles are formed on the CPU, so a given α stays there in float64


@relative
def test_shapes_alone_pass_through(name):
    encode = make(name, 8).to("meta")
    assert encode(torch.ones(2, 3, 5, 8, device="meta")).shape == (2, 3, 5, encode.feature_dim)


@relative
def test_the_dense_matrices_are_on_the_cpu_whatever_the_default_device(name):
    encode = make(name, 8)
    expected = encode.basis.dense(), encode.matrix.dense(3)
    with torch.device("meta"):
        assert_close((encode.basis.dense(), encode.matrix.dense(3)), expected, rtol=0, atol=0)
