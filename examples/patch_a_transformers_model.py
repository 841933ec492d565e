"""Replace the softmax attention of a trained transformers model by linear attention.

First only the rotary encoding is replaced, by Type 2 with the same angles, which leaves the logits unchanged. Then the
whole attention is replaced by linear attention with a decay, keeping the weights. They were learned for a softmax, so
the loss rises; training continues from there, and the model generates from a state of constant size.

By default the model is a small Llama, which needs no network; it reads bytes and is trained briefly on the topics of
Python's help. With --model it is a Llama- or GPT-NeoX-like model of the hub, with its tokenizer.

    python examples/patch_a_transformers_model.py
    python examples/patch_a_transformers_model.py --model HuggingFaceTB/SmolLM2-135M --steps 500
"""

import argparse
import copy
from pydoc_data.topics import topics

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import lrpe
from lrpe.adapt import replace_attention, replace_rotary

LENGTH, BATCH = 96, 8
TEXT = " ".join("".join(topics[name] for name in sorted(topics)).split())


def small_llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, **sizes, **heads, bos_token_id=0, eos_token_id=0))


def train(model: PreTrainedModel, text: Tensor, steps: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    for step in range(1, steps + 1):
        window = text[torch.randint(len(text) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH)]
        loss = model(input_ids=window, labels=window).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            print(f"  step {step} of {steps}: loss {loss.item():.2f}", flush=True)
    model.eval()


@torch.no_grad()
def measure(model: PreTrainedModel, text: Tensor) -> float:
    """Return the loss on the first windows of the text."""
    windows = text[: BATCH * LENGTH].view(BATCH, LENGTH)
    return model(input_ids=windows, labels=windows).loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of the hub; by default a small Llama")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--normalizer", default="plain", help="the normaliser of the linear attention")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.model is None:
        torch.set_num_threads(1)
        model, text, rate = small_llama(), torch.tensor(list(TEXT.encode())), 3e-3
        print("Training a small Llama with its own attention:")
        train(model, text, args.steps, rate)
    else:
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(args.model, trust_remote_code=False)
        text, rate = tokenizer(TEXT, return_tensors="pt").input_ids[0], 1e-4

    prompt = text[None, :64]
    with torch.no_grad():
        apart = (replace_rotary(copy.deepcopy(model))(prompt).logits - model(prompt).logits).abs().max().item()
    print(f"With our Type 2 as its rotary encoding the logits differ by {apart:.0e} at most.")

    before = measure(model, text)
    key_heads = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)
    replace_attention(model, "linear", normalizer=args.normalizer, decay=lrpe.spread_decay(key_heads))
    swapped = measure(model, text)
    print(f"With linear attention instead of softmax the loss goes from {before:.2f} to {swapped:.2f}. Training:")
    train(model, text, args.steps, rate)
    print(f"Loss {before:.2f} with softmax, {swapped:.2f} after the swap, {measure(model, text):.2f} after training.")

    output = model.generate(prompt, max_new_tokens=20, do_sample=False, return_dict_in_generate=True)
    numbers = sum(layer.state.S.numel() + layer.state.z.numel() for layer in output.past_key_values.layers)
    print(f"It generated {output.sequences.shape[1] - 64} tokens from a state of {numbers:,} numbers.")


if __name__ == "__main__":
    main()
