import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrpe.lab.data.text.text_dataset import UNSCORED
from lrpe.lab.tasks.language_modelling import LanguageModelling, octave_name
from lrpe.lab.tasks.task import evaluate
from lrpe.models import LrpeConfig
from tests.lab.data.texts import dataset

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LRPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    built = LanguageModelling(dataset()).model_class(LrpeConfig(**TINY, **LanguageModelling(dataset()).fields()))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return built.eval()


def brute_force(model, stream, length, stride, packed):
    """Return the nats per token, computed one token and one unpadded row at a time."""
    tokens = [stream.start, *stream.read(0, len(stream)).tolist()]
    ends = stream.marks[0].astype(int).tolist()
    nats = []
    for target in range(len(stream)):
        begin = max(0, (target // stride + 1) * stride - length)
        if packed:
            begin = max(begin, *(end for end in ends if end <= target))
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens[begin : target + 1]])).logits[0, -1]
        nats.append(-logits.log_softmax(-1)[tokens[target + 1]].item())
    return nats


@settings(max_examples=12)
@given(length=st.integers(1, 40), batch=st.integers(1, 9), packed=st.booleans(), data=st.data())
def test_perplexity_is_that_of_a_loop_over_single_tokens(model, length, batch, packed, data):
    stride = data.draw(st.none() | st.integers(max(1, length // 4), length))
    task = LanguageModelling(dataset(length=length, packed=packed), stride)
    found = evaluate(task, model, task.batches("validation", batch, training=False).epoch(0))
    stream = task.text.windows("validation").stream
    nats = sum(brute_force(model, stream, length, stride or length, packed))
    words, size = stream.marks[1:, -1]
    assert found["nats"] == pytest.approx(nats / len(stream), rel=1e-5)
    assert found["bits"] == pytest.approx(nats / len(stream) / math.log(2), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nats / len(stream)), rel=1e-4)
    assert found["word_perplexity"] == pytest.approx(math.exp(nats / words), rel=1e-3)
    assert found["bits_per_byte"] == pytest.approx(nats / size / math.log(2), rel=1e-5)


@settings(max_examples=6)
@given(length=st.integers(1, 40), first=st.integers(1, 12), batch=st.integers(1, 9))
def test_the_perplexity_of_an_octave_is_that_of_its_positions(model, length, first, batch):
    task = LanguageModelling(dataset(length=length), octaves=first)
    found = evaluate(task, model, task.batches("validation", batch, training=False).epoch(0))
    nats = brute_force(model, task.text.windows("validation").stream, length, length, packed=False)
    octaves = {}
    for target, each in enumerate(nats):  # 0, then 1, 2 and 3, 4 to 7, ... times ``first``
        octaves.setdefault((target % length // first).bit_length(), []).append(each)
    assert {name for name in found if "octave" in name} == {octave_name(number) for number in octaves}
    for number, part in octaves.items():
        assert found[octave_name(number)] == pytest.approx(math.exp(sum(part) / len(part)), rel=1e-4)


def test_the_perplexity_of_words_is_per_word(model):
    task = LanguageModelling(dataset(tokenizer="words", length=5))
    built = task.model_class(LrpeConfig(**TINY, **task.fields()))
    found = evaluate(task, built, task.batches("validation", 2, training=False).epoch(0))
    assert found["perplexity"] == pytest.approx(found["word_perplexity"])
    assert found["perplexity"] == pytest.approx(len(task.text.tokenizer), rel=0.2)  # it has learned nothing


def test_two_processes_together_observe_what_one_does(model):
    task = LanguageModelling(dataset(length=7), stride=3)
    one = task.batches("validation", 3, training=False).epoch(0)
    two = (
        batch
        for rank in range(2)
        for batch in task.batches("validation", 3, training=False, rank=rank, world=2).epoch(0)
    )
    assert evaluate(task, model, two) == pytest.approx(evaluate(task, model, one))


def test_training_sees_whole_windows_and_evaluation_all():
    task = LanguageModelling(dataset(length=16), stride=4)
    training = list(task.batches("train", 2, training=True).epoch(0))
    assert all(batch["input_ids"].shape == (2, 16) and (batch["labels"] != UNSCORED).all() for batch in training)
    scored = sum(
        int((batch["labels"] != UNSCORED).sum()) for batch in task.batches("train", 2, training=False).epoch(0)
    )
    assert scored == task.text.facts["splits"]["train"]["tokens"]


def test_any_number_of_workers_gives_the_same_batches():
    task = LanguageModelling(dataset(length=8, packed=True))
    alone, helped = (list(task.batches("train", 3, training=True, seed=1, workers=n).epoch(2)) for n in (0, 2))
    for a, b in zip(alone, helped, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_model_learns_from_the_loss():
    torch.manual_seed(0)
    task = LanguageModelling(dataset(length=16))
    built = task.model_class(LrpeConfig(**TINY, **task.fields()))
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-2)
    losses = []
    for epoch in range(8):
        for batch in task.batches("train", 4, training=True).epoch(epoch):
            loss = task.loss(built, batch)
            assert loss.count == 64
            losses.append(loss.total.item() / 64)
            optimizer.zero_grad()
            (loss.total / loss.count).backward()
            optimizer.step()
    assert losses[-1] < losses[0] - 1
