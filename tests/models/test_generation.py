"""Generation from the cache is generation without one."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GenerationConfig

from lrpe import LrpeError
from lrpe.attention.normalizer import NORMALIZERS
from lrpe.models import LrpeCache, LrpeForCausalLM
from tests.models.tiny import ENCODINGS, draw_ids, tiny

GREEDY = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}


def generate(model, ids, mask=None, **changes):
    return model.generate(ids, attention_mask=mask, **GREEDY | changes)


def left_padded(lengths: tuple[int, ...], n: int):
    """A batch of prompts of these lengths, padded on the left to n, and its mask."""
    ids = draw_ids(len(lengths), n)
    mask = torch.arange(n) >= n - torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, 0), mask.long()


@pytest.mark.parametrize(
    ("encoding", "normalizer"),
    [*((encoding, "plain") for encoding in ENCODINGS), *(("type2", name) for name in NORMALIZERS if name != "plain")],
)
def test_the_cache_changes_no_token(encoding, normalizer):
    model, (ids, mask) = tiny(LrpeForCausalLM, encoding, normalizer=normalizer), left_padded((3, 7), 7)
    assert torch.equal(generate(model, ids, mask), generate(model, ids, mask, use_cache=False))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_cache_of_softmax_changes_no_token(encoding):
    model, (ids, mask) = tiny(LrpeForCausalLM, encoding, attention="softmax"), left_padded((3, 7), 7)
    assert torch.equal(generate(model, ids, mask), generate(model, ids, mask, use_cache=False))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_float32_logits_from_the_cache_are_those_of_the_whole_text(encoding):
    model, ids = tiny(LrpeForCausalLM, encoding, initializer_range=0.02).float(), draw_ids(2, 20)
    cache, parts = LrpeCache(2), []
    with torch.no_grad():
        for part in ids.split([9, 1, 4, 1, 5], 1):
            parts.append(model(part, past_key_values=cache).logits)
        assert_close(torch.cat(parts, 1), model(ids, use_cache=False).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("attention", ["linear", "softmax", ["linear", "softmax"]])
@pytest.mark.parametrize("encoding", ["type1", "type2", "per"])
def test_beams_are_those_of_a_computation_without_cache(encoding, attention):
    model, (ids, mask) = tiny(LrpeForCausalLM, encoding, attention=attention), left_padded((3, 7), 7)
    beams = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.5}
    assert torch.equal(generate(model, ids, mask, **beams), generate(model, ids, mask, use_cache=False, **beams))


def test_sampling_with_one_seed_does_not_know_of_the_cache():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 5)
    found = []
    for use_cache in (True, False):
        torch.manual_seed(1)
        found.append(generate(model, ids, do_sample=True, top_k=10, num_return_sequences=2, use_cache=use_cache))
    assert torch.equal(*found)
    assert found[0].shape == (4, 17)


@pytest.mark.parametrize("absolute", [None, "sinusoidal", "learned"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_prompts_of_unequal_length_generate_as_they_would_alone(attention, absolute):
    model = tiny(LrpeForCausalLM, attention=attention, absolute_positions=absolute)
    lengths = (2, 7, 5)
    ids, mask = left_padded(lengths, 7)
    together = generate(model, ids, mask)
    for row, length in enumerate(lengths):
        alone = generate(model, ids[row : row + 1, 7 - length :])
        assert torch.equal(alone[0, length:], together[row, 7:])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_padding_on_either_side_changes_no_logit(attention, side):
    model, ids = tiny(LrpeForCausalLM, attention=attention), draw_ids(1, 6)
    padding = (3, 0) if side == "left" else (0, 3)
    padded = torch.nn.functional.pad(ids, padding, value=5)
    mask = torch.nn.functional.pad(torch.ones_like(ids), padding)
    real = slice(3, None) if side == "left" else slice(0, 6)
    assert_close(model(padded, mask).logits[:, real], model(ids).logits)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_a_prompt_read_in_chunks_generates_the_same(attention):
    model, (ids, mask) = tiny(LrpeForCausalLM, attention=attention), left_padded((9, 14), 14)
    assert torch.equal(generate(model, ids, mask, prefill_chunk_size=5), generate(model, ids, mask))


class Counting(TorchDispatchMode):
    """Counts the calls that reach torch's kernels and views."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **kwargs or {})


PLAIN_BLOCK = {"encoding": "type2", "decay": "spread", "output_gate": None, "convolution": None}
DEFAULT_BLOCK = {"encoding": "selective", "decay": "gated"}


def calls_of_a_token(layers, changes):
    model, ids = tiny(LrpeForCausalLM, num_hidden_layers=layers, **changes), draw_ids(1, 5)
    with torch.no_grad():
        cache = model(ids).past_key_values
        with Counting() as counted:
            model(ids[:, :1], past_key_values=cache)
    return counted.calls


@pytest.mark.parametrize(
    ("changes", "most"),
    [(PLAIN_BLOCK | {"normalizer": "output"}, 95), (PLAIN_BLOCK, 108), (DEFAULT_BLOCK, 175)],
    ids=["output norm", "plain", "default"],
)
def test_a_layer_adds_few_calls_to_a_token(changes, most):
    """A token is so little work that its calls are what takes time; 28 of these are of the seven projections.

    Δ has a sum of its own.
    """
    assert calls_of_a_token(2, changes) - calls_of_a_token(1, changes) <= most


@pytest.mark.parametrize("lengths", [(7, 7), (3, 7)])
def test_generation_leaves_positions_to_the_mask_and_the_cache(lengths):
    model, (ids, mask) = tiny(LrpeForCausalLM), left_padded(lengths, 7)
    told = []
    model.register_forward_pre_hook(lambda _, args, inputs: told.append(inputs.get("position_ids")), with_kwargs=True)
    generate(model, ids, mask)
    assert told == [None] * GREEDY["max_new_tokens"]


def test_a_conversation_goes_on_from_its_cache():
    model, first, answer = tiny(LrpeForCausalLM), draw_ids(1, 6), draw_ids(1, 4, seed=1)
    turn = generate(model, first, return_dict_in_generate=True)
    history = torch.cat([turn.sequences, answer], 1)
    assert turn.past_key_values.get_seq_length() == turn.sequences.shape[1] - 1
    assert torch.equal(generate(model, history, past_key_values=turn.past_key_values), generate(model, history))


def test_generation_starts_from_embeddings_too():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 5)
    embedded = model.get_input_embeddings()(ids)
    found = model.generate(inputs_embeds=embedded, **GREEDY)
    assert torch.equal(found, generate(model, ids)[:, 5:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive_search compares the keys"),
        ({"cache_implementation": "offloaded"}, "cache of this model is an LrpeCache"),
        ({"cache_implementation": "static"}, "got cache_implementation='static'. Leave it out"),
    ],
)
def test_what_a_state_cannot_do_is_refused(changes, message):
    with pytest.raises(LrpeError, match=message):
        generate(tiny(LrpeForCausalLM), draw_ids(1, 5), **changes)


def test_the_generation_configuration_can_forbid_the_cache():
    model, ids = tiny(LrpeForCausalLM), draw_ids(1, 5)
    settings = GenerationConfig(use_cache=False, return_dict_in_generate=True, **GREEDY)
    assert model.generate(ids, generation_config=settings).past_key_values is None
