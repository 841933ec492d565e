"""Small models of transformers to replace parts of, and what the tests ask of them."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
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
