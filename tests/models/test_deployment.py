"""Models at work: compiled, in pipelines, streaming."""

from threading import Thread

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast, TextIteratorStreamer, TextStreamer, pipeline

from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM, LrpeForSequenceClassification, LrpeModel
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow

TEXTS = ["linear attention", "relative positions of tokens"]
SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "mask_token": "<mask>"}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate([*SPECIAL.values(), *alphabet])}
    tokens = Tokenizer(models.BPE(words, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokens.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=tokens, **SPECIAL)


def for_text(cls: type, tokenizer: PreTrainedTokenizerFast, **changes):
    numbers = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return tiny(cls, vocab_size=len(tokenizer), max_position_embeddings=256, **numbers, **changes).float()


def padding(ids: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    return mask


@pytest.mark.parametrize(
    ("cls", "attention"), [(LrpeForSequenceClassification, ["linear"]), (LrpeForCausalLM, ["linear", "softmax"])]
)
def test_a_compiled_model_is_one_graph_that_gives_what_the_eager_one_gives(cls, attention):
    torch.compiler.reset()
    model = tiny(cls, attention=attention, num_hidden_layers=len(attention))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        for n in (13, 70):
            ids = draw_ids(2, n)
            given = {"input_ids": ids, "attention_mask": padding(ids), "use_cache": False}
            assert_close(compiled(**given).logits, model(**given).logits)
    assert counter.frame_count <= 2  # one for the first length, one for all others


def test_the_text_generation_pipeline_goes_on_with_a_text_of_any_length(tokenizer):
    model = for_text(LrpeForCausalLM, tokenizer)
    tokenizer.padding_side = "left"
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer, batch_size=2)
    options = {"max_new_tokens": 10, "do_sample": False}
    found = [text[0]["generated_text"] for text in generate(TEXTS, **options)]
    for text, continued in zip(TEXTS, found, strict=True):
        alone = model.generate(**tokenizer(text, return_tensors="pt"), **options)[0]
        assert continued == tokenizer.decode(alone, skip_special_tokens=True)
        assert continued.startswith(text)
        assert len(continued) > len(text)


def test_the_text_classification_pipeline_gives_the_labels_of_the_model(tokenizer):
    model = for_text(LrpeForSequenceClassification, tokenizer, num_labels=3)
    tokenizer.padding_side = "right"
    found = pipeline("text-classification", model=model, tokenizer=tokenizer, batch_size=2)(TEXTS, top_k=None)
    for text, scores in zip(TEXTS, found, strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(0).tolist()
        by_label = {entry["label"]: entry["score"] for entry in scores}
        assert [by_label[f"LABEL_{i}"] for i in range(3)] == pytest.approx(expected, abs=1e-5)


def test_the_fill_mask_pipeline_fills_in_what_the_model_finds_likeliest(tokenizer):
    model = for_text(LrpeForMaskedLM, tokenizer)
    text = "relative <mask>ositions"
    found = pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=4)(text)
    given = tokenizer(text, return_tensors="pt")
    (place,) = (given["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0]
    likeliest = model(**given).logits[0, place].softmax(0).topk(4)
    assert [entry["token"] for entry in found] == likeliest.indices.tolist()
    assert [entry["score"] for entry in found] == pytest.approx(likeliest.values.tolist(), abs=1e-5)


def test_the_feature_extraction_pipeline_gives_the_hidden_states(tokenizer):
    model = for_text(LrpeModel, tokenizer)
    found = pipeline("feature-extraction", model=model, tokenizer=tokenizer)(TEXTS[0], return_tensors=True)
    assert_close(found, model(**tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state)


OPTIONS = {"max_new_tokens": 20, "do_sample": False}


def test_a_streamer_prints_what_generate_returns(tokenizer, capsys):
    model, given = for_text(LrpeForCausalLM, tokenizer), tokenizer(TEXTS[0], return_tensors="pt")
    whole = model.generate(**given, **OPTIONS)[0]
    model.generate(**given, **OPTIONS, streamer=TextStreamer(tokenizer, skip_prompt=True))
    assert capsys.readouterr().out.rstrip("\n") == tokenizer.decode(whole[given["input_ids"].shape[1] :]).rstrip("\n")


def test_a_streaming_iterator_yields_what_generate_returns(tokenizer):
    model, given = for_text(LrpeForCausalLM, tokenizer), tokenizer(TEXTS[1], return_tensors="pt")
    streamer = TextIteratorStreamer(tokenizer, timeout=60)
    thread = Thread(target=model.generate, kwargs={**given, **OPTIONS, "streamer": streamer})
    thread.start()
    pieces = list(streamer)
    thread.join()
    assert len(pieces) > 1
    assert "".join(pieces) == tokenizer.decode(model.generate(**given, **OPTIONS)[0])
