"""Classifiers of texts, pairs, tokens and images, and the vectors that they pool."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import (
    LrpeForImageClassification,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    LrpeForTokenClassification,
    LrpeModel,
)
from lrpe.models.classification import pool
from tests.models.tiny import ENCODINGS, draw_ids, tiny

IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 2, "decay": None}
X = torch.arange(24.0).view(2, 4, 3)
MASK = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]])


def right_padded(lengths: tuple[int, ...], n: int):
    ids, mask = draw_ids(len(lengths), n), torch.arange(n) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, 0), mask.long()


@pytest.mark.parametrize(
    ("encoding", "choice"),
    [
        *((encoding, {}) for encoding in ENCODINGS),
        *(("type2", {"pooling": pooling, "attention": "softmax"}) for pooling in ("mean", "last", "first")),
    ],
)
def test_padding_changes_no_label(encoding, choice):
    model = tiny(LrpeForSequenceClassification, encoding, **choice)
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


@pytest.mark.parametrize("inner", [None, 8])
def test_a_classifier_is_one_layer_or_two_with_a_tanh_between(inner):
    model, ids = tiny(LrpeForSequenceClassification, classifier_hidden_size=inner, num_labels=3), draw_ids(2, 5)
    x, head = model.model(ids).last_hidden_state.mean(1), model.classifier
    x = x if inner is None else (x @ head.dense.weight.T + head.dense.bias).tanh()
    assert_close(model(ids).logits, x @ head.labels.weight.T + head.labels.bias)
    assert head.labels.in_features == (inner or 32)


@pytest.mark.parametrize(
    ("kind", "whole", "masked"),
    [
        ("mean", X.mean(1), torch.stack([X[0, 1:3].mean(0), X[1].mean(0)])),
        ("last", X[:, 3], torch.stack([X[0, 2], X[1, 3]])),
        ("first", X[:, 0], torch.stack([X[0, 1], X[1, 0]])),
    ],
)
def test_the_real_tokens_are_averaged_or_one_of_them_is_taken(kind, whole, masked):
    assert_close(pool(X, None, kind), whole)
    assert_close(pool(X, torch.ones(2, 4), kind), whole)
    for mask in (MASK, MASK.bool(), MASK.float()):
        assert_close(pool(X, mask, kind), masked)


def test_a_text_of_one_token_is_that_token_and_one_of_none_has_no_mean():
    alone = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]])
    for kind in ("mean", "last", "first"):
        assert_close(pool(X, alone, kind)[0], X[0, 2])
    assert_close(pool(X, alone, "mean")[1], torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sums_are_precise_and_the_result_has_the_dtype_of_the_tokens(dtype):
    """In bfloat16 a sum of 3000 ones ends at 256, in float16 one of 3000 hundreds in infinity."""
    x = torch.full((1, 3000, 1), 100.0, dtype=dtype)
    found = pool(x, torch.ones(1, 3000, dtype=torch.long), "mean")
    assert found.dtype == dtype
    assert_close(found, x[:, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pooling_counts_exactly_in_half_precision(dtype):
    x = torch.arange(3000.0).view(1, 3000, 1).repeat(2, 1, 1) / 3000
    mask = torch.ones(2, 3000, dtype=torch.long)
    mask[0, 2990:] = 0
    assert_close(pool(x.to(dtype), mask, "last")[:, 0], x[[0, 1], [2989, 2999], 0].to(dtype))
    assert_close(pool(x.to(dtype), mask, "mean")[0, 0].float(), x[0, :2990].mean(), atol=5e-3, rtol=0)


@pytest.mark.parametrize(
    "choice", [{"norm": "batch"}, {"norm_position": "post", "embedding_norm": True}, {"norm": "rms"}]
)
def test_every_norm_trains_whatever_the_padding(choice):
    model, (ids, mask) = tiny(LrpeForSequenceClassification, **choice).train(), right_padded((4, 6), 6)
    model(ids, mask, labels=torch.tensor([0, 1])).loss.backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert unused == []
