import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import (
    LrpeForCausalLM,
    LrpeForImageClassification,
    LrpeForMaskedLM,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    LrpeForTokenClassification,
    LrpeModel,
    architecture,
)
from lrpe.models.block import BatchNorm
from tests.models.tiny import ENCODINGS, VOCABULARY, draw_ids, tiny

IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 2, "decay": None}


def right_padded(lengths: tuple[int, ...], n: int):
    ids, mask = draw_ids(len(lengths), n), torch.arange(n) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, 0), mask.long()


@pytest.mark.parametrize("pooling", ["mean", "last", "first"])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_padding_changes_no_label(encoding, attention, pooling):
    model = tiny(LrpeForSequenceClassification, encoding, attention=attention, pooling=pooling)
    ids, mask = right_padded((4, 7), 7)
    alone = torch.cat([model(ids[:1, :4]).logits, model(ids[1:]).logits])
    assert_close(model(ids, mask).logits, alone)
    assert_close(model(ids.roll(3, 1)[:1], mask.roll(3, 1)[:1]).logits, alone[:1])  # the same on the left


@pytest.mark.parametrize(("labels", "kind"), [(1, torch.double), (3, torch.long)])
def test_one_label_is_a_regression_and_more_are_classes(labels, kind):
    model = tiny(LrpeForSequenceClassification, num_labels=labels, classifier_hidden_size=8)
    given = torch.tensor([0, labels - 1]).to(kind)
    output = model(draw_ids(2, 5), labels=given)
    squares, classes = torch.nn.functional.mse_loss, torch.nn.functional.cross_entropy
    assert_close(output.loss, squares(output.logits[:, 0], given) if labels == 1 else classes(output.logits, given))


def test_a_classifier_may_read_causally():
    model = tiny(LrpeForSequenceClassification, causal=True, pooling="last")
    assert model.config.causal is True
    assert model.model.layers[0].attention.summation.causal


def test_a_pair_is_classified_from_both_documents_their_product_and_their_difference():
    model, (ids, mask), pair = tiny(LrpeForPairClassification), right_padded((4, 6), 6), draw_ids(2, 9, seed=1)
    output = model(ids, mask, pair, labels=torch.tensor([0, 1]))
    a, b = model.read(ids, mask), model.read(pair, None)
    assert_close(output.logits, model.classifier(torch.cat([a, b, a * b, a - b], 1)))
    assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits, torch.tensor([0, 1])))
    with pytest.raises(LrpeError, match=r"input_ids .* and pair_input_ids"):
        model(ids)


def test_a_masked_model_sees_both_ways_and_scores_what_was_masked():
    model, ids = tiny(LrpeForMaskedLM), draw_ids(2, 6)
    changed = ids.clone()
    changed[:, -1] = ids[:, -1] % (VOCABULARY - 1) + 1
    assert not torch.allclose(model(ids).logits[:, 0], model(changed).logits[:, 0])
    labels = torch.full_like(ids, -100)
    labels[0, 2] = 7
    output = model(ids, labels=labels)
    assert_close(output.loss, -output.logits.float()[0, 2].log_softmax(-1)[7])
    with pytest.raises(LrpeError, match="causal must be False or None in LrpeForMaskedLM; got causal=True"):
        tiny(LrpeForMaskedLM, causal=True)


def test_a_causal_model_does_not_see_what_follows():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 6)
    changed = ids.clone()
    changed[:, -1] = 1
    assert_close(model(ids).logits[:, :-1], model(changed).logits[:, :-1])
    logits = model(ids).logits[:, :-1].float().flatten(0, 1)
    assert_close(model(ids, labels=ids).loss, torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()))


def test_each_token_gets_a_label():
    model, (ids, mask) = tiny(LrpeForTokenClassification, num_labels=5), right_padded((4, 6), 6)
    labels = (ids % 5).masked_fill(mask == 0, -100)
    output = model(ids, mask, labels=labels)
    assert output.logits.shape == (2, 6, 5)
    assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits.float()[mask == 1], labels[mask == 1]))


@pytest.mark.parametrize("layout", ["sequence", "grid", "diagonal"])
@pytest.mark.parametrize("absolute", [None, "sinusoidal", "learned"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_images_of_any_size_are_classified(layout, absolute, pooling):
    choice = IMAGE | {"position_layout": layout, "absolute_positions": absolute, "pooling": pooling}
    model = tiny(LrpeForImageClassification, num_labels=3, **choice)
    for height, width in ((16, 16), (8, 24)):
        output = model(torch.randn(2, 2, height, width, dtype=torch.double), labels=torch.tensor([0, 2]))
        assert output.logits.shape == (2, 3)
        assert output.loss.isfinite()


@pytest.mark.parametrize("layout", ["sequence", "grid", "diagonal"])
def test_on_a_grid_rows_and_columns_differ_and_on_the_diagonal_they_do_not(layout):
    model = tiny(LrpeForImageClassification, **IMAGE, position_layout=layout)
    image = torch.randn(1, 2, 16, 16, dtype=torch.double)
    patches = image.unflatten(3, (4, 4)).unflatten(2, (4, 4))
    turned = patches.permute(0, 1, 4, 3, 2, 5).flatten(4).flatten(2, 3)  # rows of patches become columns
    same = torch.allclose(model(image).logits, model(turned).logits)
    assert same == (layout == "diagonal")


def test_what_is_not_an_image_is_named():
    model = tiny(LrpeForImageClassification, **IMAGE)
    with pytest.raises(LrpeError, match=r"\(batch, 2, height, width\); got \(1, 3, 16, 16\)"):
        model(torch.randn(1, 3, 16, 16).double())
    with pytest.raises(LrpeError, match=r"multiples of patch_size=4; got \(15, 16\)"):
        model(torch.randn(1, 2, 15, 16).double())
    with pytest.raises(LrpeError, match="image_size must be set for an image model"):
        tiny(LrpeForImageClassification)
    with pytest.raises(LrpeError, match="a text model: pass input_ids"):
        tiny(LrpeModel)(pixel_values=torch.randn(1, 3, 16, 16))


def test_batch_norm_counts_real_tokens_only():
    torch.manual_seed(0)
    x, mask = torch.randn(3, 5, 4).double(), torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    ours, theirs = BatchNorm(4).double(), torch.nn.BatchNorm1d(4).double()
    assert_close(ours(x, mask)[mask], theirs(x[mask]))
    assert_close(ours.running_mean, theirs.running_mean)
    assert_close(ours.running_var, theirs.running_var)
    assert_close(ours.eval()(x, mask), theirs.eval()(x.flatten(0, 1)).view_as(x))


@pytest.mark.parametrize("real", [1, 2])
def test_batch_norm_of_few_tokens_divides_by_as_many_as_there_are(real):
    norm, x = BatchNorm(3, eps=0.5).double(), torch.randn(1, 4, 3).double()
    torch.nn.init.constant_(norm.weight, 3.0)
    torch.nn.init.constant_(norm.bias, 2.0)
    mask = (torch.arange(4) < real)[None]
    y, tokens = norm(x, mask), x[0, :real]
    mean, variance = tokens.mean(0), tokens.var(0, correction=0)
    assert_close(y[0, :real], 3 * (tokens - mean) / (variance + 0.5).sqrt() + 2)
    assert_close(norm.running_mean, 0.1 * mean)
    assert_close(norm.running_var, 0.9 + 0.1 * (tokens.var(0) if real > 1 else torch.zeros(3).double()))
    assert norm.num_batches_tracked == 1


def test_batch_norm_without_a_real_token_gives_numbers():
    norm = BatchNorm(3).double()
    assert norm(torch.randn(1, 4, 3).double(), torch.zeros(1, 4, dtype=torch.bool)).isfinite().all()
    assert norm.running_var.isfinite().all()


@pytest.mark.parametrize(
    "choice", [{"norm": "batch"}, {"norm_position": "post", "embedding_norm": True}, {"norm": "rms"}]
)
def test_every_norm_trains_whatever_the_padding(choice):
    model, (ids, mask) = tiny(LrpeForSequenceClassification, **choice).train(), right_padded((4, 6), 6)
    model(ids, mask, labels=torch.tensor([0, 1])).loss.backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert unused == []


def test_drop_path_leaves_out_branches_in_training_alone():
    model, ids = tiny(LrpeModel, drop_path_rate=0.5), draw_ids(4, 6)
    assert_close(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.train()
    torch.manual_seed(0)
    first, second = (model(ids).last_hidden_state for _ in range(2))
    assert not torch.allclose(first, second)


def count(model: type, name: str, **changes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in model(architecture(name, **changes)).parameters())


BASE = {"encoding": "none", "normalizer": "plain"}


@pytest.mark.parametrize(
    ("choice", "millions"),
    [
        (BASE, 22.04),
        ({"encoding": "rope", "normalizer": "plain"}, 22.04),
        ({"encoding": "type1"}, 22.05),
        ({"encoding": "type2"}, 22.05),
        ({"encoding": "type3"}, 22.05),
    ],
)
def test_deit_small_has_the_papers_parameter_counts(choice, millions):
    assert round(count(LrpeForImageClassification, "deit-small", **choice) / 1e6, 2) == millions


def test_the_language_models_have_as_many_parameters_as_they_should():
    layer = 4 * (512**2 + 512) + 2 * 512 * 2048 + 2048 + 512 + 4 * 512
    assert count(LrpeForCausalLM, "alm", **BASE) == 6 * layer + 2 * 512 + 267744 * 512  # sines and ties cost nothing
    from transformers import RobertaConfig, RobertaForMaskedLM

    with torch.device("meta"):
        roberta = RobertaForMaskedLM(RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1))
    theirs = sum(parameter.numel() for parameter in roberta.parameters())
    beyond = 2 * 768 + 768  # two positions that padding takes in RoBERTa, and its one token type
    assert count(LrpeForMaskedLM, "roberta-base", **BASE) == theirs - beyond


@pytest.mark.parametrize("task", ["text", "listops", "retrieval", "pathfinder", "image"])
def test_the_models_of_long_range_arena_read_and_learn(task):
    model = LrpeForPairClassification if task == "retrieval" else LrpeForSequenceClassification
    config = architecture(f"lra-{task}")
    ids = torch.randint(0, config.vocab_size - 1, (2, 40))
    pair = {"pair_input_ids": ids.flip(1)} if task == "retrieval" else {}
    torch.manual_seed(0)
    made = model(config)
    made(ids, torch.arange(40) < torch.tensor([[40], [31]]), labels=torch.tensor([0, 1]), **pair).loss.backward()
    assert all(parameter.grad is not None for parameter in made.parameters())
