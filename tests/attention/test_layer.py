"""The layer around the sums: grouped queries, widths of their own, contexts, dropout, bias."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, encoding, linear_attention
from tests.attention.choices import DECAYS, ENCODINGS, HEADS, KEY_HEADS, NORMALIZERS, SOME, WIDTH, D, E
from tests.attention.routes import recording, run
from tests.encodings.compositions import features


@pytest.mark.parametrize("choice", [choice for choice in SOME if choice.decay in DECAYS], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_grouped_queries_are_keys_and_values_repeated(choice, causal):
    how = Causal(3) if causal else Bidirectional(3)
    q, k, v = features(2, 4, 7, D), features(2, 2, 7, D, seed=1), features(2, 2, 7, E, seed=2)
    grouped = choice.build(how)
    encode, normalizer = grouped.encoding, grouped.normalizer
    r = DECAYS[choice.decay]
    options = {"encoding": encode, "normalizer": normalizer, "summation": how}
    found, state = linear_attention(q, k, v, **options, decay=r)
    for h in range(4):  # a head alone, with its key head
        g = h // 2
        if encode.heads is not None or choice.normalizer.startswith("output"):
            continue  # the encoding's heads, or the norm over heads, go together
        alone, _ = linear_attention(q[:, [h]], k[:, [g]], v[:, [g]], **options, decay=r and [r[g]])
        assert_close(found[:, [h]], alone, rtol=1e-9, atol=1e-10)
    if encode.heads is None:
        repeated, _ = linear_attention(
            q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), **options, decay=r and [r[0], r[0], r[1], r[1]]
        )
        assert_close(found, repeated, rtol=1e-9, atol=1e-10)
    assert state is None or state.S.shape[1] == 2


@pytest.mark.parametrize("sizes", [(8, 4, None, None, None), (8, 4, 2, 3, 7), (10, 3, 1, 4, None), (6, 1, 1, 5, 1)])
def test_heads_and_values_have_widths_of_their_own(sizes):
    width, heads, key_heads, head_dim, value_dim = sizes
    layer = LinearAttention(width, heads, "rope", key_heads, head_dim, value_dim).double()
    x = features(2, 5, width)
    y, state = layer.prefill(x)
    d = head_dim or width // heads
    assert y.shape == x.shape
    assert state.S.shape == (2, key_heads or heads, d, value_dim or d)
    assert layer.o_proj.in_features == heads * (value_dim or d)


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "per"])
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_context_is_seen_whole_by_every_query(name, normalizer):
    """Against loops over queries and keys, each encoded at its own position; masked keys are not there."""
    torch.manual_seed(0)
    sizes = {"key_heads": KEY_HEADS, "head_dim": D, "value_dim": E}
    choices = {"normalizer": normalizer, "summation": "bidirectional", "decay": None}
    layer = LinearAttention(WIDTH, HEADS, ENCODINGS[name](), **sizes, **choices)
    layer = layer.double().eval()
    x, context = features(2, 3, WIDTH), features(2, 5, WIDTH, seed=1)
    places, context_places = torch.tensor([4, 5, 9]), torch.tensor([0, 1, 2, 7, 8])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]])
    y = layer(x, context, places, context_positions=context_places, context_mask=mask)

    q, k, v = layer.project(x, context)
    encode, phi = layer.encoding, layer.phi
    q_table, k_table = encode.table(places, x.dtype), encode.table(context_places, x.dtype)
    before = encode.acts == "before"
    q_hat = phi(encode.query(q, q_table)) if before else encode.query(phi(q), q_table)
    k_hat = phi(encode.key(k, k_table)) if before else encode.key(phi(k), k_table)
    out = torch.zeros(2, HEADS, 3, E, dtype=x.dtype)
    for b in range(2):
        for h in range(HEADS):
            for t in range(3):
                delta = 0.0
                for s in range(5):
                    if mask[b, s]:
                        score = q_hat[b, h, t] @ k_hat[b, h // 2, s]
                        out[b, h, t] += score * v[b, h // 2, s]
                        delta += phi(q)[b, h, t] @ phi(k)[b, h // 2, s] if normalizer == "plain" else score
                if normalizer in ("plain", "encoded"):
                    out[b, h, t] /= delta
    if normalizer.startswith("output"):
        out = layer.normalizer(out, out[..., :0])
    assert_close(y, layer.join(out, x), rtol=1e-7, atol=1e-8)


def test_a_context_without_positions_is_counted_from_0_over_its_real_tokens():
    layer = LinearAttention(WIDTH, 2, "rope", summation="bidirectional", decay=None).double()
    x, context = features(1, 3, WIDTH), features(1, 5, WIDTH, seed=1)
    late = torch.tensor([[False, False, True, True, True]])
    assert_close(layer(x, context, context_mask=late), layer(x, context[:, 2:]), rtol=1e-10, atol=1e-11)


CROSS = {"summation": "bidirectional", "decay": None, "attention": "cross"}


@pytest.mark.parametrize("m", [1, 3, 5])
def test_the_function_attends_to_a_context_if_asked_to_whatever_its_length(m):
    """As the layer does: the mask is the queries', and the keys have a mask and positions of their own."""
    layer = LinearAttention(WIDTH, 2, "rope", summation="bidirectional", decay=None).double()
    x, context, places = features(2, 3, WIDTH), features(2, m, WIDTH, seed=1), torch.arange(m) * 2 + 7
    seen = torch.ones(2, m, dtype=torch.bool)
    seen[1, m // 2 :] = False
    found, state = linear_attention(
        *layer.project(x, context), layer.encoding, **CROSS, context_mask=seen, context_positions=places
    )
    assert state is None
    expected = layer(x, context, context_mask=seen, context_positions=places)
    assert_close(layer.join(found, x), expected, rtol=1e-10, atol=1e-11)


def test_dropout_falls_on_the_output_in_training_alone():
    layer, x = LinearAttention(WIDTH, 2, "rope", dropout=0.5), torch.randn(2, 50, WIDTH)
    still = layer.eval()(x)
    assert_close(layer(x), still, rtol=0, atol=0)
    dropped = layer.train()(x)
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert_close(dropped[kept], 2 * still[kept])


def test_a_bias_is_there_unless_it_is_not_wanted():
    names = {name for name, _ in LinearAttention(WIDTH, 2, "none").named_parameters()}
    assert names == {f"{which}_proj.{what}" for which in "qkvo" for what in ("weight", "bias")}
    without = {name for name, _ in LinearAttention(WIDTH, 2, "none", bias=False).named_parameters()}
    assert without == {f"{which}_proj.weight" for which in "qkvo"}


def test_a_saved_layer_is_the_layer_that_was_saved():
    x = features(1, 6, WIDTH)
    for choice in SOME:
        saved = choice.build()
        with torch.no_grad():
            for parameter in saved.parameters():
                parameter.add_(0.01)
        loaded = choice.build()
        loaded.load_state_dict(saved.state_dict())
        assert_close(loaded(x), saved(x), rtol=0, atol=0)


def test_an_encoding_that_scales_its_scores_scales_every_sum():
    x = features(1, 5, WIDTH)
    yarn = encoding("rope", 4, scaling={"kind": "yarn", "factor": 4.0, "length": 8})
    assert yarn.score_scale > 1.1
    for normalizer in ("output", "plain", "encoded"):
        torch.manual_seed(0)
        layer = recording(LinearAttention(WIDTH, 2, yarn, normalizer=normalizer, decay=None).double())
        scaled = run(layer, x)
        q, k, v = layer.project(x, x)
        scores = (yarn(layer.phi(q)) @ yarn(layer.phi(k)).mT).tril()
        assert_close(scaled.numerator, (yarn.score_scale * scores @ v).transpose(1, 2)[0])
