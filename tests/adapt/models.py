"""Small models of transformers to replace parts of, and what the tests ask of them."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
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
    SmolLM3Config,
    SmolLM3ForCausalLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    **ENDS,
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
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**GROUPED, head_dim=16)),
    "gemma 2": lambda: gemma2(),
    "gemma 3": lambda: gemma3(),
    "gemma 2 in full": lambda: gemma2(layer_types=FULL, attn_logit_softcapping=None),
    "gemma 3 in full": lambda: gemma3(layer_types=FULL),
    "smollm3": lambda: SmolLM3ForCausalLM(SmolLM3Config(**GROUPED, no_rope_layers=[1, 0])),
    "linear rope": lambda: scaled_llama({"rope_type": "linear"} | BASE),
    "yarn": lambda: scaled_llama({"rope_type": "yarn"} | BASE | TRAINED),
    "llama3": lambda: scaled_llama(
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0} | BASE | TRAINED
    ),
}
ABSOLUTE = {
    "gpt-2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ENDS)),
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES)),
    "xlm-roberta": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**SIZES)),
}
DECODERS = [*ROTARY, "gpt-2"]
BOUNDED = ["gemma 2", "gemma 3"]  # windows and caps, which our softmax attention does not have
FEW = ["llama", "gpt-neox", "qwen3"]
FAMILIES = ["gemma", "gemma 2", "gemma 3", "smollm3"]
each_rotary = pytest.mark.parametrize("name", ROTARY)
each_model = pytest.mark.parametrize("name", ROTARY | ABSOLUTE)
each_unbounded = pytest.mark.parametrize("name", [name for name in ROTARY | ABSOLUTE if name not in BOUNDED])
few = pytest.mark.parametrize("name", FEW)


FULL = ["full_attention", "full_attention"]
LAYERS = {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}


def gemma2(**changes):
    config = Gemma2Config(**GROUPED | LAYERS | {"attn_logit_softcapping": 5.0} | changes)
    return Gemma2ForCausalLM._from_config(config, attn_implementation="eager")  # the only one that it has


def gemma3(**changes):
    rope = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    }
    return Gemma3ForCausalLM(Gemma3TextConfig(**GROUPED | LAYERS | changes, rope_parameters=rope))


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
