"""Vanilla attention against plain loops, for every encoding and every canonical form; its cache against the whole."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from lrpe import (
    RPR,
    Additive,
    CosFormer,
    DeBERTa,
    DecodingState,
    FamilyForm,
    LearnedOrthogonal,
    LrpeError,
    SoftmaxAttention,
    T5Buckets,
    configure,
    encoding,
    positions,
)
from tests.encodings.compositions import EVERY, NEEDED, features

WIDTH, HEADS, KEY_HEADS, D, E = 12, 4, 2, 6, 5
FORMS = {
    "Additive": lambda: Additive(D, max_distance=3),
    "T5": lambda: T5Buckets(D, num_buckets=8, max_distance=10),
    "RPR": lambda: RPR(D, max_distance=3),
    "DeBERTa": lambda: DeBERTa(D, max_distance=3),
    "CosFormer": lambda: CosFormer(D, alpha=0.3),
    "Family": lambda: FamilyForm(encoding("fourier*unitary", D)),
}
CHOICES = (*EVERY, *FORMS)
FEW = ("type1", "type2", "type3", "per", "spe", "T5", "DeBERTa")
every = pytest.mark.parametrize("choice", CHOICES)
some = pytest.mark.parametrize("choice", FEW)


def chosen(choice):
    if choice in FORMS:
        return FORMS[choice]()
    per_head = {"heads": KEY_HEADS} if choice in ("per", "spe") else {}
    return configure(choice, D, **NEEDED.get(choice, {}) | per_head)


def make(choice="type2", **changes):
    """A layer of grouped queries, in float64 and in evaluation, the same each time, away from where learning starts."""
    torch.manual_seed(0)
    layer = SoftmaxAttention(WIDTH, HEADS, chosen(choice), KEY_HEADS, D, E, **changes).double().eval()
    with torch.no_grad():
        for i, weight in enumerate(layer.parameters()):
            weight += 0.1 * features(*weight.shape, seed=i)
    return layer


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
    Lambda = Lambda if Lambda.ndim == 2 else Lambda[h]
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
            r = 1.0 if layer.decay.r is None else float(layer.decay.r[own])
            score = layer.scale * pair_score(layer, q[b, h, i], k[b, own, j], at, to, own).item()
            weight = math.exp(score) * r ** abs(at - to)
            out[b, h, i] += weight * v[b, own, j]
            total += weight
        out[b, h, i] /= total or 1.0
    return layer.join(out)


@torch.no_grad()
@every
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_it_is_its_definition(choice, summation):
    layer, x = make(choice, summation=summation), features(1, 4, WIDTH)
    assert_close(layer(x), by_loops(layer, x, lambda b, i, j: j <= i or summation == "bidirectional"))


@torch.no_grad()
@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_padding_on_either_side_is_not_seen_and_not_counted(choice, summation):
    layer, x = make(choice, summation=summation), features(3, 6, WIDTH)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1]]).bool()
    out = layer(x, mask=mask)
    for b in range(3):
        assert_close(out[b, mask[b]], layer(x[b, mask[b]][None])[0])
    assert_close(layer(x, mask=mask.int()), out, rtol=0, atol=0)


@torch.no_grad()
@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_packed_sequences_do_not_see_each_other(choice, summation):
    layer, x, bounds = make(choice, summation=summation), features(1, 9, WIDTH), (0, 4, 5, 9)
    alone = torch.cat([layer(x[:, a:b]) for a, b in itertools.pairwise(bounds)], 1)
    assert_close(layer(x, cu_seqlens=torch.tensor(bounds)), alone)
    assert_close(layer(x, sequences=torch.tensor([7, 7, 7, 7, 2, 9, 9, 9, 9])), alone)


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
@every
@pytest.mark.parametrize("cut", [0, 4])
def test_a_prefill_and_steps_are_the_whole(choice, cut):
    layer, x = make(choice), features(2, 7, WIDTH)
    whole = layer(x)
    first, state = layer.prefill(x[:, :cut]) if cut else (whole[:, :0], layer.initial_state(2))
    middle, state = layer.prefill(x[:, cut : cut + 2], state)
    steps = []
    for token in x[:, cut + 2 :].unbind(1):
        out, state = layer.step(token, state)
        steps.append(out)
    assert_close(torch.cat([first, middle, torch.stack(steps, 1)], 1), whole)
    assert state.position.tolist() == [7, 7]
    assert state.keys.shape == (2, KEY_HEADS, 7, layer.encoding.feature_dim)


@torch.no_grad()
@some
def test_padded_rows_go_on_as_they_would_alone(choice):
    layer, x = make(choice), features(2, 7, WIDTH)
    mask = torch.tensor([[0, 0, 1, 1, 1, 0, 1], [1, 1, 1, 0, 1, 1, 1]]).bool()
    _, state = layer.prefill(x[:, :5], mask=mask[:, :5])
    assert state.position.tolist() == [3, 4]
    for i in (5, 6):
        out, state = layer.step(x[:, i], state, mask=mask[:, i])
    for b in range(2):
        assert_close(out[b], layer(x[b, mask[b]][None])[0, -1])
    assert state.position.tolist() == [4, 6]


@torch.no_grad()
def test_a_decay_reaches_into_the_cache():
    layer, x, t = make("type1", decay=[0.5, 0.9]), features(1, 6, WIDTH), torch.tensor([0, 1, 5, 6, 20, 21])
    _, state = layer.prefill(x[:, :3], positions=t[:3])
    _, state = layer.prefill(x[:, 3:5], state, positions=t[3:5])
    assert_close(layer.step(x[:, 5], state)[0], layer(x, positions=t)[:, 5])


@torch.no_grad()
def test_rows_of_a_state_can_be_chosen_again():
    layer, x = make(), features(3, 4, WIDTH)
    _, state = layer.prefill(x[:, :3])
    rows = torch.tensor([2, 0, 2])
    assert_close(layer.step(x[rows, 3], state.select(rows))[0], layer(x)[rows, 3])


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


@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_a_query_that_sees_no_key_gives_zero_and_no_gradient(choice, summation):
    layer = make(choice, summation=summation, bias=False)
    x = features(2, 4, WIDTH).requires_grad_()
    mask = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]).bool()
    out = layer(x, mask=mask)
    assert out[0].eq(0).all()
    out[0].sum().backward(retain_graph=True)
    assert x.grad is not None
    assert x.grad.eq(0).all()
    out.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (x, *layer.parameters()))
    assert x.grad[1].ne(0).any()


@some
def test_no_keys_at_all_give_zero(choice):
    if choice != "per":
        layer = make(choice, summation="bidirectional", bias=False)
        out = layer(features(2, 3, WIDTH), features(2, 0, WIDTH))
        assert out.shape == (2, 3, WIDTH)
        assert out.eq(0).all()
    assert make(choice)(features(2, 0, WIDTH)).shape == (2, 0, WIDTH)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("choice", ["none", "T5"])
def test_a_decay_too_strong_for_the_dtype_is_not_nan(choice, dtype):
    layer, x = make(choice, decay=[1e-3, 0.5]).to(dtype), features(1, 3, WIDTH, dtype=dtype).requires_grad_()
    out = layer(x, mask=torch.tensor([[1, 0, 0]]), positions=torch.tensor([0, 10**5, 10**9]))
    assert out.isfinite().all()
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.isfinite().all()


@pytest.mark.parametrize("choice", ["type1", "type2", "RPR", "spe"])
def test_gradients_are_right(choice):
    layer, x = make(choice, decay=[0.5, 0.9]), features(2, 3, WIDTH).requires_grad_()
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    torch.autograd.gradcheck(lambda x: layer(x, mask=mask), x)
    layer(x, mask=mask).square().sum().backward()
    for name, weight in layer.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.ne(0).any(), name


def test_gradients_flow_through_the_cache():
    layer, x = make("type2"), features(2, 5, WIDTH).requires_grad_()
    (whole,) = torch.autograd.grad(layer(x)[:, -1].square().sum(), x)
    _, state = layer.prefill(x[:, :4])
    (cached,) = torch.autograd.grad(layer.step(x[:, 4], state)[0].square().sum(), x)
    assert_close(cached, whole)


@some
def test_low_precision_is_near_and_autocast_runs(choice):
    layer, x = make(choice), features(2, 6, WIDTH)
    half = make(choice).bfloat16()
    assert half(x.bfloat16()).dtype == torch.bfloat16
    assert_close(half(x.bfloat16()).double(), layer(x), rtol=0.1, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = layer.float().prefill(x[:, :5].float())
        last, _ = layer.step(x[:, 5].float(), state)
        assert_close(last, layer(x.float())[:, 5], rtol=0.05, atol=0.05)


def test_attention_dropout_acts_in_training_alone():
    for choice in ("type2", "T5"):
        layer, x = make(choice, attention_dropout=0.5), features(1, 8, WIDTH)
        assert_close(layer(x), make(choice)(x))
        layer.train()
        assert not torch.allclose(layer(x), layer(x))


def test_a_saved_layer_is_the_layer_that_is_loaded():
    for choice in ("type2", "T5", "per"):
        layer = make(choice)
        other = SoftmaxAttention(WIDTH, HEADS, chosen(choice), KEY_HEADS, D, E).double().eval()
        other.load_state_dict(layer.state_dict())
        assert_close(other(features(1, 4, WIDTH)), layer(features(1, 4, WIDTH)), rtol=0, atol=0)


def test_it_compiles_to_one_graph():
    layer, x = make("type1", decay=[0.5, 0.9]), features(2, 6, WIDTH)
    assert_close(torch.compile(layer, fullgraph=True, backend="eager")(x), layer(x))


X = features(2, 3, WIDTH)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: SoftmaxAttention(12, 5), "width=12, heads=5"),
        (lambda: SoftmaxAttention(12, 4, key_heads=3), "key_heads=3"),
        (lambda: SoftmaxAttention(12, 2, "rop"), "Did you mean 'rope'"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 4)), "head_dim=4"),
        (lambda: SoftmaxAttention(12, 2, Additive(4)), "head_dim=4"),
        (lambda: SoftmaxAttention(12, 2, LearnedOrthogonal(6)), "LearnedOrthogonal"),  # type: ignore[arg-type]
        (lambda: SoftmaxAttention(12, 2, summation="casual"), "Did you mean 'causal'"),
        (lambda: SoftmaxAttention(12, 2, decay=[0.5]), "one r a key head"),
        (lambda: SoftmaxAttention(12, 2, decay=[0.5, 1.5]), "0 < r"),
        (lambda: SoftmaxAttention(12, 2, "per", decay=[0.5, 0.9]), "its own decay"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2), decay=[0.5, 0.9]), "2 axes"),
        (lambda: SoftmaxAttention(12, 2, attention_dropout=1.5), "attention_dropout=1.5"),
        (lambda: SoftmaxAttention(12, 2, scale=math.nan), "scale=nan"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2))(X.float()), "grid of 2 axes"),
        (lambda: make()(X[..., :5]), "width=12"),
        (lambda: make()(X[0, 0]), "width=12"),
        (lambda: make()(X, mask=torch.ones(2, 4).bool()), "padding mask"),
        (lambda: make()(X, mask=torch.ones(2, 3)), "padding mask"),
        (lambda: make()(X, positions=torch.arange(4)), r"\(3,\)"),
        (lambda: make()(X, positions=torch.arange(3.0)), "integers"),
        (lambda: make()(X, X), "bidirectional"),
        (lambda: make("per", summation="bidirectional")(X, X), "cross-attention has none"),
        (lambda: make(summation="bidirectional")(X, X[:1]), "width=12"),
        (lambda: make(summation="bidirectional")(X, X, sequences=torch.zeros(3).long()), "Packed"),
        (lambda: make()(X, context_mask=torch.ones(2, 3).bool()), "none was given"),
        (lambda: make(summation="bidirectional").prefill(X), "bidirectional"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2)).prefill(X.float()), "along a sequence"),
        (lambda: make().step(X[:, 0], None), "initial_state"),  # type: ignore[arg-type]
        (lambda: make().step(X, make().initial_state(2)), "one token a row"),
        (lambda: make().step(X[:, 0], make().initial_state(3)), r"got \[\(3, 2, 0, 6\)"),
        (lambda: make().step(X[:, 0], make("type1").initial_state(2)), "shapes"),
        (lambda: make().step(X[:, 0], DecodingState(X, X, X)), "got DecodingState"),  # type: ignore[arg-type]
        (lambda: make().prefill(X, make().prefill(X)[1], positions=torch.arange(3)), "go on from the state"),
    ],
)
def test_a_broken_law_is_named(wrong, message):
    with pytest.raises(LrpeError, match=message):
        wrong()
