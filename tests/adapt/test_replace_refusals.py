"""What cannot be replaced is refused by name, and left as it was."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

import lrpe
from lrpe.adapt import replace_attention, replace_rotary
from tests.adapt.models import BASE, GROUPED, SIZES, TRAINED, logits, make, scaled_llama, text


def test_what_is_not_understood_is_refused_and_left_as_it_was():
    model = OPTForCausalLM(OPTConfig(**{k: v for k, v in SIZES.items() if k != "intermediate_size"}, ffn_dim=48)).eval()
    for swap in (replace_rotary, replace_attention):
        with pytest.raises(lrpe.LrpeError, match=r"OPTAttention.*Known: LlamaAttention"):
            swap(model)
    crossed = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=1, n_head=4, add_cross_attention=True))
    with pytest.raises(lrpe.LrpeError, match=r"self-attention of a known class; .* has GPT2Attention"):
        replace_attention(crossed)
    decoder = BertForMaskedLM(BertConfig(**SIZES, is_decoder=True, add_cross_attention=True))
    with pytest.raises(lrpe.LrpeError, match="BertCrossAttention"):
        replace_attention(decoder)


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_a_model_is_replaced_once(swap):
    model = swap(make("llama"))
    for again in (replace_rotary, replace_attention):
        with pytest.raises(lrpe.LrpeError, match="attention of this LlamaForCausalLM was replaced already"):
            again(model)


@pytest.mark.parametrize(
    ("mistake", "law"),
    [
        (lambda: replace_attention(make("llama"), encoding=lrpe.configure("type2", 16)), "vectors of size 8 here"),
        (lambda: replace_rotary(make("bert")), "model must have a rotary encoding"),
        (lambda: replace_rotary(make("llama"), "per"), "without a decay"),
        (lambda: replace_rotary(make("llama"), "spe"), "member of the family"),
        (lambda: replace_rotary(make("llama"), lrpe.configure("type2", 16)), "vectors of size 8 here"),
        (lambda: replace_rotary(make("llama"), "type9"), "no encoding named 'type9'"),
        (lambda: replace_rotary(make("llama"), lrpe.encoding("type2", 8)), "a name or an EncodingConfig"),
        (lambda: replace_rotary(make("gpt-2")), "model must have a rotary encoding"),
        (lambda: replace_attention(make("llama"), layers=[2]), r"from 0 to 1, each once; got layers=\[2\]"),
        (lambda: replace_attention(make("llama"), layers=[0, 0]), "each once"),
        (lambda: replace_attention(make("llama"), layers=[]), "each once"),
        (lambda: replace_attention(make("llama"), layers="01"), "numbers of this model's layers"),
        (lambda: replace_attention(make("llama"), layers=1), "numbers of this model's layers"),
        (lambda: replace_attention(make("llama"))(text(), output_attentions=True), "never forms its weights"),
        (lambda: replace_attention(make("gpt-2"), layers=[1])(text(), output_attentions=True), "never forms its"),
        (lambda: replace_attention(make("bert")).bert(text(), output_attentions=True), "never forms its weights"),
        (lambda: replace_attention(make("llama"), "lienar"), "Did you mean 'linear'"),
        (lambda: replace_attention(make("llama"), "softmax", feature_map="relu"), "no choice of softmax attention"),
        (lambda: replace_attention(make("llama"), decay=[0.9]), "one r per key head, 2 of them"),
        (lambda: replace_rotary(scaled_llama({"rope_type": "dynamic"} | BASE)), "change with the length"),
        (
            lambda: logits(replace_attention(make("llama")), text(), torch.ones(2, 1, 12, 12)),
            r"mask of shape \(batch, n\)",
        ),
    ],
)
def test_a_mistake_is_named(mistake, law):
    with pytest.raises(lrpe.LrpeError, match=law):
        mistake()


def test_a_factor_of_the_cosines_needs_all_features_to_turn():
    rope = {"rope_type": "yarn", "partial_rotary_factor": 0.5} | BASE | TRAINED
    with pytest.raises(lrpe.LrpeError, match="must be 1 unless all features are rotated"):
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
