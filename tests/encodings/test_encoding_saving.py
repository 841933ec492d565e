"""All that defines an encoding is in its state_dict, and nowhere else."""

from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close
from transformers import PreTrainedConfig, PreTrainedModel

from lrpe import EncodingConfig, configure
from tests.encodings.compositions import EVERY, NEEDED, features, make, outputs

every = pytest.mark.parametrize("name", EVERY)
X = features(2, 3, 5, 8, dtype=torch.float32)


def make_learned(name, learned, seed=0):
    return make(name, 8, seed=seed, learned_angles=learned, learned_basis=learned).eval()


def trained(name, learned=True):
    """An encoding whose numbers no configuration knows."""
    encode = make_learned(name, learned, seed=1)
    for tensor in encode.state_dict().values():
        if tensor.is_floating_point():
            tensor.mul_(1.5)
    return encode


@every
@pytest.mark.parametrize("learned", [False, True])
def test_a_state_dict_loaded_into_another_seed_is_the_whole_encoding(name, learned):
    encode, other = trained(name, learned), make_learned(name, learned, seed=2)
    other.load_state_dict(encode.state_dict())
    assert_close(outputs(other, X), outputs(encode, X), rtol=0, atol=0)


@every
@pytest.mark.parametrize("learned", [False, True])
def test_an_encoding_made_on_meta_is_whole_once_loaded(name, learned):
    encode = trained(name, learned)
    with torch.device("meta"):
        other = make_learned(name, learned)
    assert not any(tensor.is_floating_point() and tensor.device.type != "meta" for tensor in other.buffers())
    other.to_empty(device="cpu").load_state_dict(encode.state_dict())
    assert_close(outputs(other, X), outputs(encode, X), rtol=0, atol=0)


class TinyConfig(PreTrainedConfig):
    model_type = "lrpe-tiny-test"

    def __init__(self, encoding=None, **kwargs):
        self.encoding = encoding
        super().__init__(**kwargs)


class TinyModel(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.mix = torch.nn.Linear(2, 2)
        self.encode = EncodingConfig.from_dict(config.encoding).build()
        self.post_init()


@every
@pytest.mark.parametrize(("dtype", "learned"), [(torch.float32, True), (torch.bfloat16, False)])
def test_transformers_saves_and_loads_the_encoding(name, dtype, learned, tmp_path):
    encode = trained(name, learned)
    config = configure(name, 8, learned_angles=learned, learned_basis=learned, **NEEDED.get(name, {}))
    model = TinyModel(TinyConfig(encoding=config.to_dict()))
    model.encode.load_state_dict(encode.state_dict())
    model.to(dtype).save_pretrained(tmp_path)
    loaded = TinyModel.from_pretrained(tmp_path, dtype=dtype).eval()
    assert loaded.mix.weight.dtype == dtype
    assert_close(outputs(loaded.encode, X), outputs(encode, X), rtol=0, atol=0)


@every
def test_a_float64_model_comes_back_whole(name, tmp_path):
    config = configure(name, 8, learned_angles=True, learned_basis=True, **NEEDED.get(name, {}))
    model = TinyModel(TinyConfig(encoding=config.to_dict())).double().eval()
    for tensor in model.encode.state_dict().values():
        if tensor.is_floating_point():
            tensor.mul_(1.1)  # has digits beyond float32
    model.save_pretrained(tmp_path)
    loaded = TinyModel.from_pretrained(tmp_path)
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


@every
def test_a_copy_is_equal_and_apart(name):
    encode = trained(name)
    before = outputs(encode, X)
    other = deepcopy(encode)
    assert_close(outputs(other, X), before, rtol=0, atol=0)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    assert_close(outputs(encode, X), before, rtol=0, atol=0)


@every
def test_two_encodings_share_nothing(name):
    first, second = make(name, 8).eval(), make(name, 8).eval()
    before = outputs(second, X)
    outputs(first, X)  # fills a cache, if there were one
    with torch.no_grad():
        for tensor in first.state_dict().values():
            tensor.zero_()
    assert_close(outputs(second, X), before, rtol=0, atol=0)


@every
def test_to_another_dtype_and_back_changes_nothing(name):
    encode = make(name, 8).eval()
    before = outputs(encode, X)
    for dtype in (torch.bfloat16, torch.float64, torch.float16, torch.float32):
        encode.to(dtype)
    assert_close(outputs(encode, X), before, rtol=0, atol=1e-6)
