"""An exported layer, run by onnxruntime, is the layer; with its length left open."""

import warnings

import onnxruntime
import pytest
import torch
from torch.testing import assert_close

from lrpe import LinearAttention
from tests.encodings.compositions import features

LAYERS = {
    "causal with a decay": {"encoding": "type2", "decay": [0.9, 0.99]},
    "bidirectional": {"encoding": "type1", "normalizer": "output", "summation": "bidirectional"},
}


@pytest.mark.parametrize("choices", LAYERS.values(), ids=LAYERS)
def test_onnxruntime_gives_what_torch_gives_at_any_length(choices):
    torch.manual_seed(0)
    layer = LinearAttention(8, 2, **choices).eval()
    length = torch.export.Dim("n", min=2, max=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            layer, (torch.randn(2, 100, 8),), dynamo=True, dynamic_shapes=({1: length},), verbose=False
        )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (given,) = session.get_inputs()
    for n in (5, 64, 65, 100, 300):
        x = features(2, n, 8, seed=n, dtype=torch.float32)
        (y,) = session.run(None, {given.name: x.numpy()})
        assert_close(torch.from_numpy(y), layer(x).detach(), rtol=1e-4, atol=1e-5)
