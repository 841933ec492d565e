"""The choice of an engine: the fastest that does not decline, or the one asked for."""

import pytest
import torch
from torch.testing import assert_close

import lrpe
from lrpe import LrpeError
from lrpe.attention import linear
from lrpe.attention.description import Unencoded
from lrpe.attention.engines.choice import choose_engine
from lrpe.encodings.family import FAMILY

needs_native = pytest.mark.skipif(lrpe.engines.status()["native"] != "ready", reason="the native engine is not built")


def attend(dtype=torch.float32, **options):
    torch.manual_seed(0)
    return lrpe.linear_attention(*torch.randn(3, 1, 2, 40, 8, dtype=dtype), **options)[0]


@needs_native
def test_float32_on_a_cpu_is_native_and_everything_else_torch():
    attend()
    assert lrpe.engines.last() == lrpe.engines.Ran("native", {})
    attend(torch.float64)
    ran = lrpe.engines.last()
    assert ran.engine == "torch"
    assert "float32" in ran.declined["native"]


@needs_native
@pytest.mark.parametrize("encoding", ["type1", "type2", "type3", "rope", "none"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalizer": "encoded"},
        {"normalizer": "output"},
        {"decay": None},
        {"summation": "bidirectional"},
        {"summation": "bidirectional", "decay": None},
        {"summation": "bidirectional", "decay": None, "cu_seqlens": torch.tensor([0, 7, 40])},
    ],
    ids=str,
)
def test_both_engines_give_the_same_attention(encoding, options):
    with lrpe.engines.use("torch"):
        expected = attend(encoding=encoding, **options)
        assert lrpe.engines.last().engine == "torch"
    with lrpe.engines.use("native"):
        assert_close(attend(encoding=encoding, **options), expected, rtol=1e-3, atol=1e-5)


@needs_native
@pytest.mark.parametrize("name", [name for name in FAMILY if name not in ("cosformer",)])
@pytest.mark.parametrize("key_phase", [False, True])
def test_every_member_has_the_attention_of_the_torch_engine(name, key_phase):
    needed = {"heads": 2} if name == "per" else {"length": 40} if name == "hope" else {}
    encode = lrpe.encoding(name, 8, seed=0, key_phase=key_phase, **needed)
    for parameter in encode.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # among them the phases of the keys, which start at 0
    steps = {} if encode.steps == "fixed" else {"steps": torch.rand(1, 2, 40)}
    with lrpe.engines.use("torch"):
        expected = attend(encoding=encode, **steps)
    assert_close(attend(encoding=encode, **steps), expected, rtol=1e-3, atol=1e-5)


@needs_native
@pytest.mark.parametrize("heads", [None, 4], ids=["shared", "per head"])
@pytest.mark.parametrize("name", ["type1", "type2", "type3"])
def test_the_features_of_the_three_types_are_computed_by_the_engine_for_any_batch(name, heads, monkeypatch):
    encode, taken = lrpe.encoding(name, 8, heads=heads, seed=0), []
    monkeypatch.setattr(linear, "choose_engine", lambda problem: taken.append(problem) or choose_engine(problem))
    for batch in (1, 3, 4):
        lrpe.linear_attention(*torch.randn(3, batch, 4, 40, 8), encode)
    assert [type(problem) for problem in taken] == [Unencoded] * 3


@needs_native
def test_both_engines_give_the_same_attention_on_a_grid_and_over_a_context():
    q, k, v = (torch.randn(1, 2, n, 8) for n in (12, 12, 12))
    on_grid = lrpe.encoding("type2", 8, axes=2, seed=0)
    both_ways = {"summation": "bidirectional", "decay": None}
    runs = [
        lambda: lrpe.linear_attention(q, k, v, on_grid, positions=lrpe.positions.grid(3, 4), **both_ways)[0],
        lambda: lrpe.linear_attention(q[:, :, :5], k, v, "type2", attention="cross", **both_ways)[0],
    ]
    for run in runs:
        with lrpe.engines.use("torch"):
            expected = run()
        with lrpe.engines.use("native"):
            assert_close(run(), expected, rtol=1e-3, atol=1e-5)


@needs_native
def test_an_engine_that_is_asked_for_and_declines_says_so():
    with lrpe.engines.use("native"), pytest.raises(LrpeError, match="float32"):
        attend(torch.float64)


def test_an_unknown_engine_is_refused():
    with pytest.raises(LrpeError, match="native"), lrpe.engines.use("nativ"):
        pass


def test_the_status_names_every_engine():
    assert list(lrpe.engines.status()) == ["native", "fla", "torch"]
    assert lrpe.engines.status()["torch"] == "ready"
