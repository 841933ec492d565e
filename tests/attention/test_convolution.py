"""The short convolution and the output gate of both layers, against their formulas and over every way of reading."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from lrpe import LinearAttention, LrpeError, SoftmaxAttention, encoding, linear_attention, parameter_groups
from tests.attention.choices import HEADS, WIDTH, token_dependent
from tests.encodings.compositions import features

KINDS = (LinearAttention, SoftmaxAttention)
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def make(kind: Any = LinearAttention, **changes):
    """A layer with a gate and a convolution whose weights are away from where they start."""
    return token_dependent(
        kind, **{"output_gate": "silu", "convolution": 3, "convolution_activation": "silu"} | changes
    )


def convolve(x, weight, activation, causal=True):
    """torch's own depthwise convolution of x (batch, n, channels)."""
    if causal:
        y = F.conv1d(F.pad(x.mT, (weight.shape[1] - 1, 0)), weight[:, None], groups=len(weight)).mT
    else:
        kernel = weight.shape[1]  # padded as torch's padding="same", which warns if the kernel is even
        y = F.conv1d(F.pad(x.mT, ((kernel - 1) // 2, kernel // 2)), weight[:, None], groups=len(weight)).mT
    return F.silu(y) if activation == "silu" else y


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("kernel", "activation"), [(4, "silu"), (3, None)])
def test_the_layer_is_a_convolution_of_its_projections_then_attention_then_a_gate(kernel, activation, causal):
    summation = "causal" if causal else "bidirectional"
    choice = {"convolution": kernel, "convolution_activation": activation, "decay": None, "summation": summation}
    layer, x = make(**choice, output_gate="sigmoid"), features(2, 7, WIDTH)
    flat = torch.cat([layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)], -1)
    parts = convolve(flat, layer.convolution.weight, activation, causal).split([8, 4, 4], -1)
    q, k, v = (y.unflatten(-1, (-1, 2)).transpose(1, 2) for y in parts)
    heads, _ = linear_attention(q, k, v, layer.encoding, decay=None, summation=summation)
    gate = torch.sigmoid(x @ layer.output_gate.proj.weight.T + layer.output_gate.proj.bias)
    assert_close(layer(x), layer.o_proj(gate * heads.transpose(1, 2).flatten(2)), **EXACT)


def test_queries_and_keys_of_two_sequences_are_convolved_along_their_own():
    layer = make(SoftmaxAttention, summation="bidirectional", decay=None)
    x, context = features(2, 5, WIDTH), features(2, 7, WIDTH, seed=1)
    of_q, of_k, of_v = layer.convolution.weight.split([8, 4, 4])
    q = convolve(layer.q_proj(x), of_q, "silu", causal=False)
    k, v = (convolve(p(context), w, "silu", causal=False) for p, w in ((layer.k_proj, of_k), (layer.v_proj, of_v)))
    plain = make(SoftmaxAttention, summation="bidirectional", decay=None, convolution=None, convolution_activation=None)
    plain.load_state_dict({name: t for name, t in layer.state_dict().items() if "convolution" not in name})
    plain.project = lambda *_: tuple(y.unflatten(-1, (-1, 2)).transpose(1, 2) for y in (q, k, v))
    assert_close(layer(x, context), plain(x, context), **EXACT)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_convolution_without_activation_changes_nothing(kind, summation):
    outputs = []
    for kernel in (None, 4):
        torch.manual_seed(0)
        outputs.append(kind(WIDTH, HEADS, summation=summation, convolution=kernel).double()(features(2, 6, WIDTH)))
    assert_close(*outputs, **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cut_anywhere_is_the_whole_text(kind):
    layer, x = make(kind, decay="gated"), features(2, 7, WIDTH)
    whole, last = layer.prefill(x)
    for cuts in itertools.chain(itertools.combinations(range(8), 2), [range(8)]):
        state, parts = layer.initial_state(2), []
        for begin, end in itertools.pairwise((0, *cuts, 7)):
            y, state = layer.prefill(x[:, begin:end], state)
            parts.append(y)
        assert_close(torch.cat(parts, 1), whole, **EXACT)
        assert_close(state, last, **EXACT)
    assert last.window.shape == layer.initial_state(2).window.shape == (2, 2, 16)


def test_reserved_memory_holds_the_window_too():
    layer, x = make(SoftmaxAttention), features(2, 7, WIDTH)
    state, parts = layer.reserve(2, 3), []
    for token in x.unbind(1):
        y, state = layer.step(token, state)
        parts.append(y)
    assert_close(torch.stack(parts, 1), layer(x), **EXACT)
    assert_close(state.select(torch.tensor([1, 1])).window, layer.prefill(x)[1].window[[1, 1]], **EXACT)


MASKS = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 1, 0], [0] * 7]).bool()


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_takes_no_place_in_the_window(kind, summation):
    layer, x = make(kind, summation=summation), features(4, 7, WIDTH)
    x[~MASKS] = torch.nan
    y = layer(x, mask=MASKS)
    for row in range(3):
        assert_close(y[row, MASKS[row]], layer(x[row : row + 1, MASKS[row]])[0], **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_takes_no_place_in_the_state_wherever_the_text_is_cut(kind):
    layer, x = make(kind), features(4, 7, WIDTH)
    whole, last = layer.prefill(x, mask=MASKS)
    for cut in range(1, 7):
        _, state = layer.prefill(x[:, :cut], mask=MASKS[:, :cut])
        y, state = layer.prefill(x[:, cut:], state, mask=MASKS[:, cut:])
        assert_close(y[MASKS[:, cut:]], whole[:, cut:][MASKS[:, cut:]], **EXACT)
        assert_close(state.window, last.window, **EXACT)
    alone = [layer.prefill(x[row : row + 1, MASKS[row]])[1].window for row in range(3)]
    assert_close(last.window, torch.cat([*alone, torch.zeros(1, 2, 16).double()]), **EXACT)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_start_anew(kind, summation):
    layer, x = make(kind, summation=summation), features(1, 7, WIDTH)
    sequences, mask = torch.tensor([3, 0, 0, 0, 1, 1, 1]), torch.tensor([[1, 1, 1, 1, 1, 0, 1]]).bool()
    alone = torch.cat([layer(part) for part in (x[:, :1], x[:, 1:4], x[:, 4:])], 1)
    assert_close(layer(x, sequences=sequences), alone, **EXACT)
    with_padding = layer(x, sequences=sequences, mask=mask)[mask]
    assert_close(with_padding[:4], alone[0, :4], **EXACT)
    assert_close(with_padding[4:], layer(x[:, [4, 6]])[0], **EXACT)


def test_each_packed_sequence_leaves_its_window():
    layer, lengths = make(), [2, 0, 4, 1]
    x, mask = features(1, 7, WIDTH), torch.tensor([[1, 1, 1, 0, 1, 1, 1]]).bool()
    for told in (None, mask):
        _, states = layer.prefill(x, mask=told, cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))
        real = mask if told is not None else torch.ones_like(mask)
        parts = zip(x.split(lengths, 1), real.split(lengths, 1), strict=True)
        alone = [layer.prefill(part, mask=seen)[1] for part, seen in parts]
        assert_close(states.window, torch.cat([state.window for state in alone]), **EXACT)
    _, nothing = layer.prefill(x[:, :0], cu_seqlens=torch.zeros(3, dtype=torch.long))
    assert_close(nothing.window, layer.initial_state(2).window)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind):
    layer, x, mask = make(kind), features(2, 4, WIDTH).requires_grad_(), MASKS[1:3, :4].clone()
    names = ("convolution.weight", "output_gate.proj.weight")
    given = tuple(layer.get_parameter(name) for name in names)

    def loss(x, *weights):
        y = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,), {"mask": mask})
        return y[mask]

    assert torch.autograd.gradcheck(loss, (x, *given), fast_mode=True)


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_in_bfloat16_and_under_autocast_steps_continue_a_prefill(kind, autocast):
    layer, x = make(kind).float(), features(2, 6, WIDTH).float()
    layer, x = (layer, x) if autocast else (layer.bfloat16(), x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole, _ = layer.prefill(x)
        _, state = layer.prefill(x[:, :5])
        last, state = layer.step(x[:, 5], state)
    assert whole.dtype == state.window.dtype == torch.bfloat16
    assert_close(last, whole[:, 5], rtol=0.05, atol=0.05)


def test_weights_of_gate_and_convolution_decay_and_biases_do_not():
    layer = make()
    decayed = [id(parameter) for parameter in parameter_groups(layer)[0]["params"]]
    assert id(layer.convolution.weight) in decayed
    assert id(layer.output_gate.proj.weight) in decayed
    assert id(layer.output_gate.proj.bias) not in decayed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"convolution": 1, "convolution_activation": None}, "convolution must be a whole number from 2"),
        ({"convolution": True}, "got convolution=True"),
        ({"convolution_activation": "relu"}, "relu"),
        ({"convolution": None}, "got convolution_activation='silu' and convolution=None"),
        ({"output_gate": "tanh"}, "tanh"),
        ({"output_gate": []}, "output_gate"),
    ],
)
def test_choices_that_do_not_exist_are_refused(changes, message):
    with pytest.raises(LrpeError, match=message):
        make(**changes)


def test_a_grid_has_no_neighbours_along_a_sequence():
    with pytest.raises(LrpeError, match=r"convolution runs along a sequence; .* grid of 2 axes"):
        LinearAttention(16, 2, encoding("type2", 8, axes=2), decay=None, convolution=4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_layer_is_refused(kind):
    with_window, without = make(kind), make(kind, convolution=None, convolution_activation=None)
    x, state = features(2, 3, WIDTH), make(kind).initial_state(2)
    for layer, given in ((without, state), (with_window, without.initial_state(2))):
        with pytest.raises(LrpeError, match="state must have a window if, and only if, the layer has a convolution"):
            layer.prefill(x, given)
    with pytest.raises(LrpeError, match=r"state.window must have shape .*\(2, 2, 16\)"):
        with_window.prefill(x, state.with_window(state.window[:, 1:]))
