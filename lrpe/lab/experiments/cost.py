"""What an experiment costs, before it is run: parameters, tokens, operations, time at a given speed."""

from dataclasses import dataclass
from typing import Any

import torch

from lrpe.lab.data.text.vocabularies import bpe_size
from lrpe.lab.experiments.build import build_config, model_class
from lrpe.lab.experiments.experiment import Experiment
from lrpe.models.configuration import LrpeConfig

BYTES = 260  # and four special tokens among them


@dataclass(frozen=True)
class Cost:
    """``flops`` are the operations of training: forward and backward, three times the forward's."""

    parameters: int
    tokens: float
    flops: float

    def seconds(self, tflops: float) -> float:
        return self.flops / (tflops * 1e12)


def estimate(experiment: Experiment) -> Cost:
    """Of one run, without what it begins with; nothing is loaded, so samples are the column's own."""
    config = build_config(experiment, vocabulary(experiment))
    with torch.device("meta"):
        model: Any = model_class(experiment)(config)
    length = tokens_of(experiment, config)
    tokens = samples_of(experiment) * length * (2 if experiment.kind == "pair" else 1)
    matrices = {id(p): p.numel() for name, p in model.named_parameters() if p.ndim >= 2 and "embed" not in name}
    head = config.vocab_size * config.hidden_size if experiment.kind in ("language", "masked") else 0
    forward = 2 * (sum(matrices.values()) + head) + attention_flops(config, length)
    return Cost(sum(p.numel() for p in model.parameters()), tokens, 3 * forward * tokens)


def vocabulary(experiment: Experiment) -> dict[str, int]:
    """The size that the tokeniser's name tells; the architecture's own if it tells none."""
    tokenizer = str(experiment.data.options.get("tokenizer", ""))
    size = BYTES if tokenizer == "bytes" else bpe_size(tokenizer)
    return {} if size is None else {"vocab_size": size}


def attention_flops(config: LrpeConfig, length: int) -> float:
    """Of the sums of a token in all layers: with the state for linear attention, with every token for softmax."""
    width = config.num_attention_heads * config.head_dim
    features = config.head_dim * (2 if config.layer_encoding(0).matrix == "unitary" else 1)
    layers = [config.layer_attention(k) for k in range(config.num_hidden_layers)]
    return sum(4 * width * (features if kind == "linear" else length) for kind in layers)


def samples_of(experiment: Experiment) -> float:
    plan = experiment.training.optimization
    return plan.epochs * experiment.samples if plan.epochs else plan.updates * plan.batch


def tokens_of(experiment: Experiment, config: LrpeConfig) -> int:
    if config.image_size is not None:
        return (config.image_size // config.patch_size) ** 2
    return experiment.data.options.get("length") or config.max_position_embeddings
