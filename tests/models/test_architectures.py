"""The paper's architectures: their sizes are the paper's, and they learn."""

import pytest
import torch

from lrpe import LrpeError
from lrpe.models import (
    LrpeConfig,
    LrpeForCausalLM,
    LrpeForImageClassification,
    LrpeForMaskedLM,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    architecture,
)
from lrpe.models.architectures import ARCHITECTURES


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


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_named_configuration_comes_back_from_its_file(name, tmp_path):
    config = architecture(name)
    config.save_pretrained(tmp_path)
    assert LrpeConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()


def test_an_unknown_architecture_is_refused_with_the_nearest():
    with pytest.raises(LrpeError, match=r"no architecture named 'deit-smal'. Did you mean 'deit-small'"):
        architecture("deit-smal")
