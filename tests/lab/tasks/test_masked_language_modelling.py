import math

import pytest
import torch
import torch.nn.functional as F

from lrpe.lab.data.text.text_dataset import UNSCORED
from lrpe.lab.tasks.language_modelling import MaskedLanguageModelling
from lrpe.lab.tasks.task import evaluate
from lrpe.models import LrpeConfig
from tests.lab.data.texts import dataset, write_gpt2

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path))


def build(task):
    torch.manual_seed(0)
    return task.model_class(LrpeConfig(**TINY, **task.fields())).eval()


def batches(task, split="train", size=2, training=False, epoch=0, **options):
    return list(task.batches(split, size, training, **options).epoch(epoch))


def ids(found):
    return [batch["input_ids"].tolist() for batch in found]


@pytest.mark.parametrize("packed", [False, True])
def test_bits_are_those_of_the_hidden_tokens_alone_row_by_row(packed):
    task = MaskedLanguageModelling(dataset(length=12, packed=packed), rate=0.3)
    model, nats, count = build(task), 0.0, 0
    for batch in batches(task, size=1):
        given = {} if not packed else {"seq_idx": batch["sequences"]}
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], **given).logits[0]
        hidden = batch["labels"][0] != UNSCORED
        nats += F.cross_entropy(logits[hidden], batch["labels"][0][hidden], reduction="sum").item()
        count += int(hidden.sum())
    found = evaluate(task, model, batches(task, size=4))
    assert found["nats"] == pytest.approx(nats / count, rel=1e-5)
    assert found["bits"] == pytest.approx(nats / count / math.log(2), rel=1e-5)


def test_what_is_hidden_is_drawn_anew_in_training_and_fixed_in_evaluation():
    task = MaskedLanguageModelling(dataset(length=12), rate=0.5)
    training = [ids(batches(task, training=True, epoch=epoch)) for epoch in (0, 0, 1)]
    assert training[0] == training[1] != training[2]
    evaluated = [ids(batches(task, epoch=epoch, seed=seed)) for epoch, seed in ((0, 0), (3, 0), (0, 5))]
    assert evaluated[0] == evaluated[1] == evaluated[2]


def test_any_number_of_workers_hides_the_same():
    task = MaskedLanguageModelling(dataset(length=12, packed=True), whole_words=True)
    alone, helped = (batches(task, training=True, seed=4, workers=workers) for workers in (0, 2))
    assert ids(alone) == ids(helped)


def test_each_token_is_in_one_window_behind_a_start():
    task = MaskedLanguageModelling(dataset(length=12))
    rows = [
        (row, labels, mask)
        for batch in batches(task)
        for row, labels, mask in zip(*(batch[n] for n in ("input_ids", "labels", "attention_mask")), strict=True)
    ]
    assert all(row[0] == task.tokenizer.specials["bos"] for row, _, _ in rows)
    true = [torch.where(labels == UNSCORED, row, labels)[mask == 1][1:] for row, labels, mask in rows]
    stream = task.text.windows("train").stream
    assert torch.cat(true).tolist() == stream.read(0, len(stream)).tolist()


def test_a_vocabulary_without_mask_and_padding_gets_them(tmp_path):
    task = MaskedLanguageModelling(dataset(tokenizer=str(write_gpt2(tmp_path)), length=12), rate=0.5)
    assert task.fields() == {"vocab_size": 260, "bos_token_id": None, "eos_token_id": 257, "pad_token_id": 258}
    found = torch.cat([batch["input_ids"].flatten() for batch in batches(task, size=1)])
    assert (found == 259).any()
    assert found.max() < 260
    assert evaluate(task, build(task), batches(task))["bits"] > 0


def test_the_fields_of_a_learned_vocabulary_are_robertas():
    task = MaskedLanguageModelling(dataset(tokenizer="bpe:270"))
    assert task.fields() == {"vocab_size": 270, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    assert task.tokenizer is task.text.tokenizer


def test_an_untrained_model_needs_about_the_bits_of_its_vocabulary():
    task = MaskedLanguageModelling(dataset(length=12))
    found = evaluate(task, build(task), batches(task))
    assert found["bits"] == pytest.approx(math.log2(260), rel=0.1)
