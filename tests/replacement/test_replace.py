"""Our encodings and our attention in models of transformers, with their weights."""

import copy
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_model
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

import lrpe
from lrpe.models.cache import StateLayer
from lrpe.replacement import replace_attention, replace_rotary

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
BASE = {"rope_theta": 10000.0, "factor": 4.0}
TRAINED = {"original_max_position_embeddings": 16}

ROTARY = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED)),
    "llama with biases": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED, attention_bias=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=None)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**GROUPED, num_local_experts=2)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=16)),
    "phi": lambda: PhiForCausalLM(PhiConfig(**GROUPED, partial_rotary_factor=0.5, qk_layernorm=True)),
    "gpt-neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES | {"hidden_size": 64}, rotary_pct=0.25)),
    "gpt-neox without biases": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, attention_bias=False, rotary_pct=1.0)),
    "linear rope": lambda: scaled_llama({"rope_type": "linear"} | BASE),
    "yarn": lambda: scaled_llama({"rope_type": "yarn"} | BASE | TRAINED),
    "llama3": lambda: scaled_llama(
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0} | BASE | TRAINED
    ),
}
ABSOLUTE = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)),
    "xlm-roberta": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SIZES)),
}
FEW = ["llama", "gpt-neox", "qwen3"]

each_rotary = pytest.mark.parametrize("name", ROTARY)
each_model = pytest.mark.parametrize("name", ROTARY | ABSOLUTE)
few = pytest.mark.parametrize("name", FEW)


def scaled_llama(rope):
    return LlamaForCausalLM(LlamaConfig(**GROUPED, rope_parameters=rope))


def make(name):
    """A model with weights large enough for every part of it to show in the logits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = (ROTARY | ABSOLUTE)[name]()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return model.eval()


def text(rows=2, length=12, seed=0):
    return torch.randint(3, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded(tokens, left, right):
    """The tokens with padding on both sides, and the mask that says so."""
    around = torch.nn.functional.pad
    return around(tokens, (left, right)), around(torch.ones_like(tokens), (left, right))


@torch.no_grad()
def logits(model, tokens, mask=None, **kwargs):
    return model(tokens, attention_mask=mask, **kwargs).logits


def apart(a, b):
    return (a - b).abs().max().item()


def generate(model, tokens, mask, **kwargs):
    made = model.generate(tokens, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False, **kwargs)
    return made[:, tokens.shape[1] :]


@each_rotary
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_rotary_encoding_is_type_2_with_the_angles_of_the_model_in_its_layout(name, implementation):
    model = make(name)
    model.set_attn_implementation(implementation)
    tokens, mask = padded(text(), 3, 0)
    before = logits(model, tokens, mask)[:, 3:]
    assert before.std() > 0.5
    assert apart(logits(replace_rotary(model), tokens, mask)[:, 3:], before) < 1e-5


@each_model
def test_softmax_attention_of_ours_computes_what_the_model_did(name):
    model = make(name)
    tokens, mask = padded(text(), 0, 3)
    before = logits(model, tokens, mask)[:, :-3]
    assert apart(logits(replace_attention(model, "softmax"), tokens, mask)[:, :-3], before) < 1e-5


@each_model
@pytest.mark.parametrize(("left", "right"), [(0, 5), (5, 0)])
def test_padding_on_either_side_gives_the_unpadded_answer_of_linear_attention(name, left, right):
    tokens = text()
    model = replace_attention(make(name), "linear", encoding="type2")
    wide, mask = padded(tokens, left, right)
    places = (
        {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if name == "bert" else {}
    )  # its positions are absolute
    answer = logits(model, wide, mask, **places)[:, left : left + tokens.shape[1]]
    assert apart(answer, logits(model, tokens)) < 1e-5


@each_model
def test_a_decoder_sees_no_token_after_its_own_and_an_encoder_sees_all(name):
    model = replace_attention(make(name), "linear")
    tokens = text()
    changed = torch.cat([tokens[:, :-1], (tokens[:, -1:] + 1).clamp(max=60)], 1)
    early = apart(logits(model, changed)[:, :6], logits(model, tokens)[:, :6])
    assert (early == 0) if name in ROTARY else (early > 1e-4)


@few
@pytest.mark.parametrize("swap", [replace_rotary, lambda model: replace_attention(model, "softmax")])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_model_that_computes_what_it_did_generates_what_it_did(name, swap, beams):
    model = make(name)
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    before = generate(model, tokens, mask, num_beams=beams)
    assert torch.equal(generate(swap(model), tokens, mask, num_beams=beams), before)


@few
@pytest.mark.parametrize(
    "swap",
    [
        lambda model: replace_rotary(model, "type1"),
        lambda model: replace_rotary(model, "type3"),
        lambda model: replace_attention(model, "linear", "type1", normalizer="output-rms-head"),
        lambda model: replace_attention(model, "linear", decay=lrpe.spread_decay(key_heads(model))),
        lambda model: replace_attention(model, "linear", "per", feature_map="relu+1e-3"),
    ],
    ids=["rotary type1", "rotary type3", "linear type1", "linear decay", "linear per"],
)
@pytest.mark.parametrize("beams", [1, 3])
def test_generation_from_a_cache_is_generation_without_one(name, swap, beams):
    model = swap(make(name))
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    whole = generate(model, tokens, mask, num_beams=beams, use_cache=False)
    assert torch.equal(generate(model, tokens, mask, num_beams=beams), whole)


def key_heads(model):
    return getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)


def test_the_cache_of_a_linear_model_holds_states_of_one_size_for_life():
    model = replace_attention(make("llama"))
    with torch.no_grad():
        cache = model(text(), use_cache=True).past_key_values
        short = [layer.state.S.shape for layer in cache.layers]
        longer = model(text(length=20), past_key_values=cache, use_cache=True).past_key_values
    assert all(isinstance(layer, StateLayer) for layer in longer.layers)
    assert [layer.state.S.shape for layer in longer.layers] == short
    assert longer.get_seq_length() == 32


def test_the_rows_of_a_cache_can_be_repeated_chosen_and_forgotten_but_not_its_last_tokens():
    model = replace_attention(make("llama"))
    tokens = text()
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([3, 0]))
        after = model(tokens[:, :3], past_key_values=cache).logits
    assert apart(after, logits(model, torch.cat([tokens.flip(0), tokens[:, :3]], 1))[:, -3:]) < 1e-5
    with pytest.raises(lrpe.LrpeError, match="cannot take tokens back"):
        cache.crop(-1)
    cache.reset()
    assert cache.get_seq_length() == 0


def test_a_cache_of_another_model_is_refused():
    model = make("llama")
    with torch.no_grad():
        cache = model(text(), use_cache=True).past_key_values
    with pytest.raises(lrpe.LrpeError, match="keys and values of another attention"):
        logits(replace_attention(model), text(), past_key_values=cache)


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_shifting_all_positions_changes_nothing(swap):
    model = swap(make("gpt-neox"))
    place = torch.arange(12)[None]
    assert apart(logits(model, text(), position_ids=place + 1000), logits(model, text(), position_ids=place)) < 1e-5


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention, lambda model: replace_attention(model, "softmax")])
def test_packed_sequences_are_told_by_positions_that_start_anew(swap):
    model = swap(make("llama"))
    place = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed = logits(model, text(rows=1), position_ids=place, use_cache=False)
    alone = [logits(model, part, use_cache=False) for part in text(rows=1).split([5, 7], 1)]
    assert apart(packed, torch.cat(alone, 1)) < 1e-5


def test_a_gap_in_the_positions_is_read_as_the_model_reads_it():
    model, place = make("llama"), torch.cat([torch.arange(5), torch.arange(9, 16)])[None]
    before = logits(model, text(rows=1), position_ids=place, use_cache=False)
    ours = logits(replace_attention(model, "softmax"), text(rows=1), position_ids=place, use_cache=False)
    assert apart(ours, before) < 1e-5


def test_a_window_stays_when_the_rotary_encoding_alone_is_replaced():
    model = MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=4)).eval()
    before = logits(model, text())
    with pytest.raises(lrpe.LrpeError, match="window of 4 tokens"):
        replace_attention(model, "softmax")
    assert apart(logits(replace_rotary(model), text()), before) < 1e-5


def test_attention_weights_are_recorded_as_before():
    model = make("gpt-neox")
    model.set_attn_implementation("eager")
    before = model(text(), output_attentions=True).attentions
    after = replace_rotary(model)(text(), output_attentions=True).attentions
    assert len(after) == 2
    assert all(apart(a, b) < 1e-5 for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("swap", [replace_rotary, lambda model, encoding: replace_attention(model, "linear", encoding)])
def test_every_layer_draws_its_own_encoding_from_the_seed(swap):
    named = {key: value for key, value in swap(make("llama"), "type2").state_dict().items() if "basis" in key}
    config = replace(lrpe.configure("type2", 8), seed=1)
    moved = {key: value for key, value in swap(make("llama"), config).state_dict().items() if "basis" in key}
    first, second = named.values()
    assert apart(first, second) > 0.1
    assert torch.equal(next(iter(moved.values())), second)


@each_model
def test_every_weight_of_a_linear_model_learns_and_a_few_steps_lower_the_loss(name):
    model = replace_attention(make(name), "linear", "type2", normalizer="output-rms").train()
    names = [key for key, _ in model.named_parameters()]
    for part in ("q_proj", "k_proj", "v_proj", "o_proj", "alpha"):
        assert sum(f"{part}" in key for key in names) >= 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        loss = model(text(), labels=text()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    within = {key: value for key, value in model.named_parameters() if ".attention." in key and "proj.weight" in key}
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in within.values())
    assert losses[-1] < losses[0]


@few
def test_the_angles_of_a_replaced_rotary_encoding_are_learned_layer_by_layer(name):
    model = replace_rotary(make(name)).train()
    model(text(), labels=text()).loss.backward()
    grads = [value.grad for key, value in model.named_parameters() if key.endswith("alpha")]
    assert len(grads) == 2
    assert all(grad.abs().sum() > 0 for grad in grads)


@pytest.mark.parametrize(
    ("name", "swap"), [("llama", replace_rotary), ("bert", replace_attention)], ids=["llama", "bert"]
)
def test_gradient_checkpointing_changes_no_gradient(name, swap):
    def gradients(checkpointing):
        model = swap(make(name))
        if checkpointing:
            model.gradient_checkpointing_enable()
            model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
        model(text(), labels=text(), use_cache=False).loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    assert apart(gradients(True), gradients(False)) < 1e-5


@pytest.mark.parametrize(
    ("name", "swap"),
    [
        ("llama", replace_rotary),
        ("gpt-neox", replace_rotary),
        ("llama", replace_attention),
        ("gpt-neox", replace_attention),
        ("bert", replace_attention),
    ],
)
def test_a_saved_model_comes_back_exactly(tmp_path, name, swap):
    model = swap(make(name), encoding="type2")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01  # away from what the constructors give

    class Replaced(type(model)):
        def __init__(self, config):
            super().__init__(config)
            swap(self, encoding="type2")

    model.save_pretrained(tmp_path / "shards", save_original_format=False, max_shard_size="30KB")
    model.save_pretrained(tmp_path / "whole", save_original_format=False)
    by_class = Replaced.from_pretrained(tmp_path / "shards")
    by_hand = swap(type(model)(type(model.config).from_pretrained(tmp_path / "whole")), encoding="type2").eval()
    load_model(by_hand, tmp_path / "whole" / "model.safetensors")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    for loaded in (by_class, by_hand):
        same = [torch.equal(loaded.state_dict()[key], value) for key, value in model.state_dict().items()]
        assert all(same)
        assert apart(logits(loaded, text()), logits(model, text())) < 1e-5


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_the_weights_are_those_of_the_model_and_not_copies(name):
    model = make(name)
    own = {id(parameter) for parameter in model.parameters()}
    after = dict(replace_attention(model).named_parameters())
    assert {id(p) for key, p in after.items() if not key.endswith("alpha")} == own


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_a_model_in_bfloat16_stays_in_it_and_its_angles_do_not(swap):
    model = swap(make("llama").to(torch.bfloat16), encoding="type2")
    assert logits(model, text()).dtype == torch.bfloat16
    kinds = {key.rpartition(".")[2]: value.dtype for key, value in model.named_parameters()}
    assert kinds["weight"] == torch.bfloat16
    assert kinds["alpha"] == torch.float32


def test_a_copy_of_a_replaced_model_is_independent_of_it():
    model = replace_rotary(make("llama"))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model.model.layers[0].self_attn.encoding.matrix.angles.alpha += 1
    assert apart(logits(model, text()), logits(twin, text())) > 1e-3


def test_what_is_not_understood_is_refused_and_left_as_it_was():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=1, n_head=4)).eval()
    for swap in (replace_rotary, replace_attention):
        with pytest.raises(lrpe.LrpeError, match=r"GPT2Attention.*Understood: LlamaAttention"):
            swap(model)
    decoder = BertForMaskedLM(BertConfig(**SIZES, is_decoder=True, add_cross_attention=True))
    with pytest.raises(lrpe.LrpeError, match="BertCrossAttention"):
        replace_attention(decoder)


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_a_model_is_replaced_once(swap):
    model = swap(make("llama"))
    for again in (replace_rotary, replace_attention):
        with pytest.raises(lrpe.LrpeError, match=r"not all of it is understood: (Encoded|Fitted)"):
            again(model)


@pytest.mark.parametrize(
    ("mistake", "law"),
    [
        (lambda: replace_attention(make("llama"), encoding=lrpe.configure("type2", 16)), "vectors of size 8 here"),
        (lambda: replace_rotary(make("bert")), "no rotary encoding to replace"),
        (lambda: replace_rotary(make("llama"), "per"), "without a decay"),
        (lambda: replace_rotary(make("llama"), "spe"), "member of the family"),
        (lambda: replace_rotary(make("llama"), lrpe.configure("type2", 16)), "vectors of size 8 here"),
        (lambda: replace_rotary(make("llama"), "type9"), "no encoding named 'type9'"),
        (lambda: replace_rotary(make("llama"), lrpe.encoding("type2", 8)), "a name or an EncodingConfig"),
        (lambda: replace_attention(make("llama"), "lienar"), "Did you mean 'linear'"),
        (lambda: replace_attention(make("llama"), "softmax", feature_map="relu"), "no choice of softmax attention"),
        (lambda: replace_attention(make("llama"), decay=[0.9]), "one r a key head, 2 of them"),
        (lambda: replace_rotary(scaled_llama({"rope_type": "dynamic"} | BASE)), "change with the length"),
        (lambda: logits(replace_attention(make("llama")), text(), torch.ones(2, 1, 12, 12)), r"mask of \(batch, n\)"),
    ],
)
def test_a_mistake_is_named(mistake, law):
    with pytest.raises(lrpe.LrpeError, match=law):
        mistake()


def test_a_factor_of_the_cosines_needs_all_features_to_turn():
    rope = {"rope_type": "yarn", "partial_rotary_factor": 0.5} | BASE | TRAINED
    with pytest.raises(lrpe.LrpeError, match="only if all features turn"):
        replace_rotary(PhiForCausalLM(PhiConfig(**GROUPED, rope_parameters=rope)))


def test_a_refusal_leaves_the_model_as_it_was():
    model = make("llama")
    before = logits(model, text())
    for mistake in ({"encoding": "per", "decay": [0.9, 0.9]}, {"normalizer": "nothing"}):
        with pytest.raises(lrpe.LrpeError):
            replace_attention(model, **mistake)
    with pytest.raises(lrpe.LrpeError):
        replace_rotary(model, "spe")
    assert torch.equal(logits(model, text()), before)
