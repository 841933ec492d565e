"""One row over several processes: the output, the state and all gradients of one process."""

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from lrpe import LinearAttention, LrpeError, SoftmaxAttention, encoding, linear_attention, parallel, positions
from lrpe.attention.decay import DECAYS
from lrpe.attention.inputs import Given
from lrpe.attention.tokens import read_tokens
from lrpe.encodings.family import BASELINES, FAMILY
from tests.encodings.compositions import features
from tests.lab.training.forked import finish, fork

BATCH, N, WIDTH, HEADS, KEY_HEADS = 2, 23, 12, 4, 2
PACKED = torch.tensor([[0] * 3 + [1] * 9 + [2] * 4 + [3] * 7, [5] * 17 + [2] * 6])
LONGEST = ("cosformer", "hope")  # encodings whose angles depend on the longest length
POSITIONS = (torch.arange(N) + (torch.arange(N) > 9) * 3 + (torch.arange(N) > 14) * 2).expand(BATCH, -1)


def _padding() -> Tensor:
    """Padding at both ends, in the middle and over a whole part; the second row has a single real token."""
    mask = torch.ones(BATCH, N, dtype=torch.bool)
    mask[0, :2] = mask[0, 11:13] = mask[0, 20:] = False
    mask[1] = False
    mask[1, 8] = True
    return mask


MASK = _padding()


class Case:
    """A layer and what is said of its tokens, of the whole row."""

    def __init__(self, name: str = "type2", tokens: dict[str, Tensor] | None = None, **options: Any):
        self.name, self.tokens, self.options = name, tokens or {}, options

    def layer(self, dtype: torch.dtype) -> LinearAttention:
        torch.manual_seed(0)
        encode = self.name if self.name not in LONGEST else encoding(self.name, 6, length=N)
        layer = LinearAttention(WIDTH, HEADS, encode, key_heads=KEY_HEADS, head_dim=6, **self.options).double()
        with torch.no_grad():  # away from where learning starts, so that gates and steps differ from token to token
            for i, weight in enumerate(layer.parameters()):
                weight += 0.3 * features(*weight.shape, seed=i)
        return layer.to(dtype).eval()

    def check(self, group: Any, dtype: torch.dtype) -> None:
        cut = [*sorted(torch.randperm(N, generator=torch.Generator().manual_seed(1))[: group.size() - 1].tolist()), N]
        start = 0 if group.rank() == 0 else cut[group.rank() - 1]
        own = slice(start, cut[group.rank()])
        layer, x = self.layer(dtype), features(BATCH, N, WIDTH, seed=3).to(dtype).requires_grad_()
        whole = self.run(layer, x, slice(0, N), last=True)
        upto = self.run(layer, x.detach()[:, : own.stop], slice(0, own.stop), last=True)[1] if layer.causal else None
        of_whole = self.gradients(layer, x, whole[2])
        part = x.detach()[:, own].requires_grad_()
        with parallel.context(group):
            out, state, loss = self.run(layer, part, own, last=group.rank() == group.size() - 1)
        found = self.gradients(layer, part, loss)
        for name, gradient in found.items():  # before anything is compared: a process that fails here would not answer
            if name != "x":
                dist.all_reduce(gradient, group=group)
        rounding = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
        real = self.tokens.get("mask", torch.ones(BATCH, N, dtype=torch.bool))[:, own]
        assert_close(out[real], whole[0][:, own][real], **rounding)
        if layer.causal:
            for mine, theirs in zip(state, upto, strict=True):
                assert mine is None or assert_close(mine, theirs, **rounding) is None
        scale = max(float(g.abs().max()) for g in of_whole.values())  # float32 rounds sums by their largest terms
        for name, gradient in found.items():
            expected = of_whole["x"][:, own] if name == "x" else of_whole[name]
            assert_close(gradient / scale, expected / scale, **rounding, msg=lambda m, name=name: f"{name}: {m}")

    def run(self, layer: LinearAttention, x: Tensor, own: slice, last: bool) -> tuple[Tensor, Any, Tensor]:
        """Return the output, the state, and a loss of both; that of the state counts on the last process."""
        tokens = {name: value[:, own] for name, value in self.tokens.items()}
        if layer.causal:  # as prefill does, which takes no sequences
            read = read_tokens(x, Given(**tokens), counts=layer.counts, causal=True)
            out, state = layer.attend(x, x, read, read)
        else:
            out, state = layer(x, **tokens), None
        probe = features(BATCH, N, WIDTH, seed=4).to(x)[:, own]
        real = self.tokens.get("mask", torch.ones(BATCH, N, dtype=torch.bool))[:, own, None]
        loss = torch.where(real, out * probe, 0).sum()
        for part in () if state is None else (state.S, state.z, state.phase, state.window):
            if part is not None:
                loss = loss + last * (part * features(*part.shape, seed=5).to(part)).sum()
        return out, state or (), loss

    def gradients(self, layer: LinearAttention, x: Tensor, loss: Tensor) -> dict[str, Tensor]:
        named = {"x": x} | {name: p for name, p in layer.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {
            name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), grads, strict=True)
        }


BOTH_WAYS = {"summation": "bidirectional"}
CASES: dict[str, Case] = {
    "type1": Case("type1", normalizer="encoded", decay=None),
    "type2": Case("type2", decay="learned"),
    "type3": Case("type3", normalizer="output-rms", decay="spread"),
    "rope": Case("rope", normalizer="clamped", decay="gated"),
    "per": Case("per", normalizer="output-head"),
    "none, where Δ sums the scores": Case("none", normalizer="encoded", decay="spread"),
    "spe": Case("spe", decay=None),
    "selective": Case("selective", decay="gated"),
    "selective-free": Case("selective-free", decay="learned", convolution=4),
    "mamba3": Case("mamba3", decay="mamba3"),
    "switched": Case("switched", decay="tnl"),
    "rope-half": Case("rope-half", decay=(0.9, 1.0)),
    "permuteformer": Case("permuteformer", decay="retnet"),
    "cosformer": Case("cosformer", decay="gated"),
    "pope": Case("pope", decay="learned"),
    "half-rotated": Case("half-rotated", decay=None),
    "hope": Case("hope", decay="spread"),
    "p-rope": Case("p-rope", normalizer="encoded", decay="tnl"),
    "retnet": Case("retnet", decay="retnet"),
    "lrpe-d": Case("lrpe-d"),
    "padded": Case("type2", {"mask": MASK}, decay="learned", convolution=4),
    "padded selective": Case("selective", {"mask": MASK}, decay="gated"),
    "positions": Case("selective", {"positions": POSITIONS}, decay="gated"),
    "packed": Case("type2", {"sequences": PACKED}, decay="gated", convolution=3),
    "packed without decay": Case("type1", {"sequences": PACKED}, decay=None),
    "packed and padded": Case("selective", {"sequences": PACKED, "mask": MASK}, convolution=4),
    "both ways": Case("type1", decay=None, **BOTH_WAYS),
    "both ways, selective": Case("selective", decay=None, convolution=4, **BOTH_WAYS),
    "both ways, decay": Case("type2", decay="gated", normalizer="encoded", **BOTH_WAYS),
    "both ways, padded": Case("type2", {"mask": MASK}, decay="learned", convolution=5, **BOTH_WAYS),
    "both ways, packed and padded": Case(
        "type2", {"sequences": PACKED, "mask": MASK}, decay="gated", convolution=4, **BOTH_WAYS
    ),
    "both ways, packed without decay": Case("type3", {"sequences": PACKED}, decay=None, **BOTH_WAYS),
}


def _bytes_sent(group: Any) -> None:
    """The bytes of a layer's forward and backward pass do not depend on the number of tokens."""

    def send(layer: LinearAttention, n: int) -> int:
        with _count_bytes() as sent, parallel.context(group):
            layer(features(1, n, WIDTH).to(layer.q_proj.weight)).sum().backward()
        return sum(sent)

    for name in ("selective-free", "both ways, selective", "both ways, decay"):
        for dtype in (torch.float32, torch.float64):  # by the native engine, if causal, and by torch's
            layer = CASES[name].layer(dtype)
            assert 0 < send(layer, 5) == send(layer, 300), name


@contextmanager
def _count_bytes() -> Iterator[list[int]]:
    """Yield a list of the bytes given to every call by which a process group can send tensors."""
    sent: list[int] = []

    def spy(communicate: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            sent.extend(x.numel() * x.element_size() for x in tree_leaves(args) if isinstance(x, Tensor))
            return communicate(*args)

        return call

    sends = re.compile("gather|reduce|scatter|all_?to|broadcast|send")
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(sends.search, vars(dist.ProcessGroup)):
            patch.setattr(dist.ProcessGroup, name, spy(getattr(dist.ProcessGroup, name)))
        yield sent


def _refusals(group: Any) -> None:
    x, layer = features(1, 4, WIDTH), Case().layer(torch.float64)
    state = layer.prefill(x)[1]
    cu_seqlens = torch.tensor([0, 5, 4 * group.size()])
    q = features(1, 2, 4, 6)
    cells = {"encoding": encoding("type2", 8, axes=2), "positions": positions.grid(2, 2), "decay": None}
    refused: dict[str, Callable[[], Any]] = {
        "Softmax": lambda: SoftmaxAttention(WIDTH, HEADS).double()(x),
        "continues a state": lambda: layer.prefill(x, state),
        "Cross-attention": lambda: linear_attention(q, q, q, attention="cross", summation="bidirectional", decay=None),
        "grid": lambda: linear_attention(*[features(1, 2, 4, 8)] * 3, summation="bidirectional", **cells),
        "packed sequences in other parts": lambda: layer.prefill(x, cu_seqlens=cu_seqlens),
        "given on all processes": lambda: layer(x, positions=torch.arange(4) if group.rank() == 0 else None),
        "same number of rows": lambda: layer(x.expand(1 + group.rank(), -1, -1)),
        "mask": lambda: layer(x, mask=torch.ones(1, 4 if group.rank() == 0 else 3, dtype=torch.bool)),
        "draws other noise": lambda: Case("spe", decay=None).layer(torch.float64).train()(x),
        "never fall": lambda: layer(x, positions=torch.arange(4)),  # they fall at the border of two parts
    }
    with parallel.context(group):
        for words, call in refused.items():
            with pytest.raises(LrpeError, match=f"{words}|refused"):
                call()
        assert layer(x, cu_seqlens=cu_seqlens).shape == x.shape


def _uneven_and_empty_parts(group: Any) -> None:
    """A row of three tokens, whose halos reach beyond the neighbour, and the way there and back of a tensor."""
    layer, x = Case("selective", convolution=4).layer(torch.float64), features(BATCH, 3, WIDTH)
    with parallel.context(group):
        out = parallel.join_parts(layer(parallel.own_part(x)))
        assert torch.equal(parallel.join_parts(parallel.own_part(x, -1), -1), x)
    assert_close(out, layer(x), rtol=1e-10, atol=1e-10)


def _function(group: Any) -> None:
    """The function, with boundaries of the whole row, and with a token that forgets and the state of a sequence."""
    q, k, v = (features(1, 2, N, 6, seed=i) for i in range(3))
    log_decay, steps = -features(1, 2, N, seed=3).abs(), features(1, 2, N, seed=4)
    log_decay[..., 9] = -torch.inf
    cu_seqlens = torch.tensor([0, 3, 3, 15, N])
    own = slice(*(torch.arange(N).tensor_split(group.size())[group.rank()][[0, -1]] + torch.tensor([0, 1])).tolist())

    def attend(tokens: slice, **given: Any) -> Any:
        cut = [x[:, :, tokens] for x in (q, k, v, log_decay, steps)]
        return linear_attention(*cut[:3], log_decay=cut[3], steps=cut[4], **given)

    with parallel.context(group):
        mine, after = attend(own, sequences=PACKED[0, own])
        also, _ = attend(own, cu_seqlens=cu_seqlens, output_final_state=False)
    theirs, state = attend(slice(0, own.stop), sequences=PACKED[0, : own.stop])
    for found, expected in zip((mine, *after[:3]), (theirs[:, :, own], *state[:3]), strict=True):
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
    whole, _ = attend(slice(0, N), cu_seqlens=cu_seqlens, output_final_state=False)
    assert_close(also, whole[:, :, own], rtol=1e-10, atol=1e-10)


def _nothing_is_left(group: Any) -> None:
    """Checkpointing computes a layer again, without a backward pass of its own; none of that may stay in memory."""
    layer, x = Case("type2").layer(torch.float32), features(1, 8, WIDTH).float().requires_grad_()
    with parallel.context(group):
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is parallel.Gathering]


OTHERS = {
    "nothing is left": _nothing_is_left,
    "the function": _function,
    "bytes": _bytes_sent,
    "refusals": _refusals,
    "empty parts": _uneven_and_empty_parts,
}


def check_all(folder: Path) -> None:
    """Run every case with four processes and with two, each in float64 and float32; write what went wrong."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = dist.get_rank() // 2  # the two pairs work at the same time, one in each precision
    every: Any = dist.group.WORLD
    turns = ((every, torch.float64), (every, torch.float32), (pairs[pair], (torch.float64, torch.float32)[pair]))
    wrong: dict[str, list[str]] = {}
    for name in [*CASES, *OTHERS]:
        for group, dtype in turns if name in CASES else turns[::2]:
            try:
                if name in CASES:
                    CASES[name].check(group, dtype)
                else:
                    OTHERS[name](group)
            except (AssertionError, LrpeError, RuntimeError, pytest.fail.Exception) as error:
                wrong.setdefault(name, []).append(f"{group.size()} processes: {type(error).__name__}: {error}")
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(wrong))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    finish(fork(check_all, 4, folder), seconds=120)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_several_processes_give_what_one_gives(wrong, name):
    assert [each[name] for each in wrong if name in each] == []


def test_every_encoding_and_every_decay_has_a_case():
    assert {*FAMILY, *BASELINES} <= {case.name for case in CASES.values()}
    assert {*DECAYS, None} <= {case.options.get("decay", "recommended") for case in CASES.values()}


def test_outside_a_context_the_whole_is_ones_own():
    x = features(1, 5, 2)
    assert parallel.own_part(x) is x
    assert parallel.join_parts(x) is x
    with pytest.raises(LrpeError, match="process group"), parallel.context():
        pass
