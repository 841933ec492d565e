"""Whole models in ONNX, with an open batch and an open length; tests/attention/test_export.py has every attention."""

import warnings

import onnxruntime
import pytest
import torch
from torch.export import Dim
from torch.testing import assert_close

from lrpe.models import (
    LrpeForImageClassification,
    LrpeForMaskedLM,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
)
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow

OPEN = {0: Dim("batch"), 1: Dim("length")}


def to_onnx(model, inputs: dict[str, torch.Tensor], shapes: dict) -> onnxruntime.InferenceSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            model,
            kwargs=inputs,
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=["logits"],
            dynamic_shapes=shapes,
        )
    assert program is not None
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString())


def assert_agrees(session: onnxruntime.InferenceSession, model, inputs: dict[str, torch.Tensor]) -> None:
    (found,) = session.run(["logits"], {name: value.numpy() for name, value in inputs.items()})
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=5e-5)


def text(batch: int, n: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, n, dtype=torch.long)
    mask[0, max(1, n - 3) :] = 0
    return {"input_ids": draw_ids(batch, n), "attention_mask": mask}


LENGTHS = [(3, 40), (1, 1), (5, 64), (2, 65), (1, 300)]  # within the chunk of the example, at its border, beyond


@pytest.mark.parametrize(
    ("cls", "choice"),
    [
        (LrpeForSequenceClassification, {"causal": True, "pooling": "last"}),
        (LrpeForMaskedLM, {"absolute_positions": "sinusoidal", "decay": None}),
    ],
    ids=["causal classifier", "masked language model"],
)
def test_onnxruntime_gives_what_torch_gives_for_any_batch_and_length(cls, choice):
    model = tiny(cls, num_hidden_layers=1, **choice).float()
    session = to_onnx(model, text(3, 40), {"input_ids": OPEN, "attention_mask": OPEN})
    for shape in LENGTHS:
        assert_agrees(session, model, text(*shape))


def test_a_pair_has_two_open_lengths_and_one_batch():
    choice = {"attention": "softmax", "absolute_positions": "sinusoidal", "decay": None}
    model = tiny(LrpeForPairClassification, num_hidden_layers=1, **choice).float()
    other = {0: OPEN[0], 1: Dim("other")}
    inputs = text(3, 40) | {"pair_input_ids": draw_ids(3, 30, seed=1)}
    session = to_onnx(model, inputs, {"input_ids": OPEN, "attention_mask": OPEN, "pair_input_ids": other})
    for batch, n, m in ((3, 40, 30), (1, 65, 7), (5, 9, 130)):
        assert_agrees(session, model, text(batch, n) | {"pair_input_ids": draw_ids(batch, m, seed=1)})


def test_images_of_any_batch_and_size():
    sizes = {"image_size": 16, "patch_size": 4, "num_channels": 2, "decay": None, "position_layout": "grid"}
    model = tiny(
        LrpeForImageClassification, num_hidden_layers=1, pooling="first", absolute_positions="learned", **sizes
    )
    model = model.float()
    shapes = {"pixel_values": {0: Dim("batch"), 2: 4 * Dim("rows"), 3: 4 * Dim("columns")}}
    session = to_onnx(model, {"pixel_values": torch.randn(3, 2, 16, 24)}, shapes)
    for batch, height, width in ((3, 16, 24), (1, 8, 24), (5, 20, 12)):
        assert_agrees(session, model, {"pixel_values": torch.randn(batch, 2, height, width)})
