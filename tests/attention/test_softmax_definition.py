"""Vanilla attention against plain loops, for every encoding and every canonical form."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from lrpe import SoftmaxAttention, encoding, positions
from lrpe.theory import FamilyForm
from tests.attention.softmax import CHOICES, HEADS, KEY_HEADS, WIDTH, D, E, every, make
from tests.encodings.compositions import NEEDED, features


def pair_score(layer, q, k, t, s, h):
    """The score of one pair of vectors, before its scale, from what specifies the encoding."""
    if layer.form is not None:
        W = layer.form.relative(s - t)
        return (layer.form.queries(q[None]).to(W.dtype).conj() @ W @ layer.form.keys(k[None]).to(W.dtype).mT).real
    if not layer.encoding.relative:  # SPE has no W; its features are those of its own test
        q_table, k_table = (layer.encoding.table(torch.tensor([p]), torch.float64) for p in (t, s))
        q_hat = layer.encoding.query(q.expand(KEY_HEADS, 1, D), q_table)[h]
        return q_hat @ layer.encoding.key(k.expand(KEY_HEADS, 1, D), k_table)[h].mT
    P, Lambda = layer.encoding.basis.dense(), layer.encoding.matrix.dense(s - t)
    Lambda = (Lambda if Lambda.ndim == 2 else Lambda[h]) @ layer.encoding.matrix.dense_key_phase()
    return (q.to(P.dtype).conj() @ (P.mH @ Lambda @ P).to(P.dtype) @ k.to(P.dtype)).real


def by_loops(layer, x, sees, t=None, context=None, s=None):
    """The definition, one query at a time; ``sees(b, i, j)`` says whether query i of row b sees key j."""
    q, k, v = layer.project(x, x if context is None else context)
    t = torch.arange(q.shape[2]).expand(len(x), -1) if t is None else t
    s = (t if context is None else torch.arange(k.shape[2]).expand(len(x), -1)) if s is None else s
    out = torch.zeros(len(x), HEADS, q.shape[2], E, dtype=torch.float64)
    for b, h, i in itertools.product(range(len(x)), range(HEADS), range(q.shape[2])):
        own = h // (HEADS // KEY_HEADS)
        total = 0.0
        for j in (j for j in range(k.shape[2]) if sees(b, i, j)):
            at, to = int(t[b, i]), int(s[b, j])
            r = 1.0 if layer.decay is None else float(layer.decay.r[own])
            score = layer.scale * pair_score(layer, q[b, h, i], k[b, own, j], at, to, own).item()
            weight = math.exp(score) * r ** abs(at - to)
            out[b, h, i] += weight * v[b, own, j]
            total += weight
        out[b, h, i] /= total or 1.0
    return layer.join(out, x)


@torch.no_grad()
@every
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_it_is_its_definition(choice, summation):
    layer, x = make(choice, summation=summation), features(1, 4, WIDTH)
    assert_close(layer(x), by_loops(layer, x, lambda b, i, j: j <= i or summation == "bidirectional"))


@torch.no_grad()
@pytest.mark.parametrize("choice", [name for name in CHOICES if name != "per"])  # which has a decay
def test_a_context_is_seen_whole(choice):
    layer, x, context = make(choice, summation="bidirectional"), features(2, 3, WIDTH), features(2, 4, WIDTH, seed=1)
    real, s = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0]]).bool(), torch.tensor([[0, 2, 3, 9], [5, 6, 7, 8]])
    out = layer(x, context, context_positions=s, context_mask=real)
    assert_close(out, by_loops(layer, x, lambda b, i, j: bool(real[b, j]), context=context, s=s))


@torch.no_grad()
@pytest.mark.parametrize("choice", ["none", "type1", "type2", "T5"])
def test_a_decay_is_a_factor_on_the_weights(choice):
    layer, x = make(choice, decay=[0.5, 0.9]), features(2, 5, WIDTH)
    assert_close(layer(x), by_loops(layer, x, lambda b, i, j: j <= i))
    t = torch.tensor([[0, 3, 4, 100, 104], [-5, 0, 1, 2, 3]])
    assert_close(layer(x, positions=t), by_loops(layer, x, lambda b, i, j: j <= i, t))


@torch.no_grad()
@pytest.mark.parametrize("choice", [name for name in CHOICES if name != "spe"])  # relative in expectation alone
def test_shifting_all_positions_changes_nothing(choice):
    layer, x, t = make(choice), features(2, 6, WIDTH), torch.tensor([0, 1, 2, 5, 6, 9])
    assert_close(layer(x, positions=t + 1000), layer(x, positions=t), rtol=1e-6, atol=1e-8)


@torch.no_grad()
def test_on_a_grid_positions_have_two_axes():
    encode = encoding("rope", 8, axes=2).double()
    layer = SoftmaxAttention(16, 2, encode, summation="bidirectional").double()
    x, cells = features(2, 6, 16), positions.grid(2, 3)
    assert_close(layer(x, positions=cells + 5), layer(x, positions=cells))
    assert not torch.allclose(layer(x, positions=cells.flip(-1)), layer(x, positions=cells))


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_rope_half_is_llamas_attention(key_heads):
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=key_heads, attention_bias=True)
    config._attn_implementation = "eager"
    llama, rotary = LlamaAttention(config, layer_idx=0).double(), LlamaRotaryEmbedding(config)
    layer = SoftmaxAttention(32, 4, "rope-half", key_heads).double()
    assert layer.load_state_dict(llama.state_dict(), strict=False).unexpected_keys == []
    x, order = features(2, 9, 32), torch.arange(9)[None]
    hidden = torch.full((9, 9), -torch.inf, dtype=torch.float64).triu(1)
    theirs, _ = llama(x, rotary(x, order), hidden[None, None])
    assert_close(layer(x), theirs, rtol=1e-5, atol=1e-6)  # llama's angles and softmax are float32


def test_the_scale_is_the_users_and_the_encodings():
    x, token = features(1, 4, WIDTH), 1 / math.sqrt(D)
    assert make("type1").scale == make("T5").scale == pytest.approx(token)
    assert make("spe").scale == pytest.approx(1 / math.sqrt(NEEDED["spe"]["realizations"]))
    assert make("DeBERTa", scale=(3 * D) ** -0.5).scale == (3 * D) ** -0.5
    yarn = encoding("rope", D, scaling={"kind": "yarn", "factor": 4.0, "length": 64})
    assert yarn.score_scale > 1
    member, form = (SoftmaxAttention(WIDTH, 2, choice, head_dim=D).double() for choice in (yarn, FamilyForm(yarn)))
    form.load_state_dict({name: w for name, w in member.state_dict().items() if "proj" in name}, strict=False)
    assert member.scale == form.scale == pytest.approx(token * yarn.score_scale)
    assert_close(member(x), form(x))


def test_q_and_k_share_their_noise_in_training_across_a_context_too():
    layer = make("spe", summation="bidirectional").train()
    x = features(1, 4, WIDTH)
    torch.manual_seed(0)
    own = layer(x)
    torch.manual_seed(0)
    assert_close(layer(x, x.clone()), own)
