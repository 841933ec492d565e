"""``lrpe bench language``: whole training steps of the default language model ÷ softmax attention's, as texts grow."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Line, collect, line_from
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import warn_if_busy
from lrpe.lab.benchmarks.train import specified, training_step
from lrpe.lab.benchmarks.turns import Turns, take_turns
from lrpe.lab.stamp import stamp

_TOLERANCE = 1e-3  # relative, for float32 logits after all layers

LINEAR, SOFTMAX, DECAYED, LLAMA = "linear", "softmax", "softmax, gated decay", "Llama"
_SOFTMAX = {"attention": "softmax", "encoding": "rope"}
_CHANGES: dict[str, dict[str, Any]] = {LINEAR: {}, SOFTMAX: _SOFTMAX | {"decay": None}, DECAYED: _SOFTMAX}


@dataclass(frozen=True)
class _Sizes:
    """Sizes of the models and lengths of the texts; every step has the same number of tokens."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    tokens: int
    lengths: tuple[int, ...]

    def fields(self) -> dict[str, Any]:
        """Return the fields that LrpeConfig and LlamaConfig share."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "vocab_size": self.vocabulary,
        }


_FULL = _Sizes(4, 256, 4, 512, 4096, 8192, (512, 2048, 8192))  # the model of the scale `medium`
QUICK = _Sizes(2, 32, 2, 64, 64, 64, (16, 64))
GOALS = {2048: 1.0, 8192: 1.0}  # of linear ÷ softmax: not slower from 2,048 tokens on


@dataclass(frozen=True)
class _Speed:
    model: str
    parameters: int
    length: int
    tokens_per_second: float


@dataclass(frozen=True)
class _LanguageResult(Measurement):
    benchmark = "language"
    sizes: _Sizes
    speeds: list[_Speed]
    agreement: Agreement

    def title(self) -> list[str]:
        sizes = self.sizes
        model = f"{sizes.layers} layers of width {sizes.width}, {sizes.heads} heads, feed-forward {sizes.inner}"
        return [
            "Training steps of language models in float32: linear attention's time ÷ softmax's; lower is better.",
            f"{model}, a vocabulary of {sizes.vocabulary}; {sizes.tokens} tokens per step, in texts of each length.",
            f"Forward, cross-entropy, backward, Adam. Medians of {self.rounds} rounds, quartiles in brackets.",
        ]

    def tables(self) -> list[str]:
        found = {(speed.model, speed.length): f"{speed.tokens_per_second:,.0f}" for speed in self.speeds}
        parameters = {speed.model: f"{speed.parameters:,}" for speed in self.speeds}
        rows = [
            [model, count, *(found.get((model, n), "–") for n in self.sizes.lengths)]
            for model, count in parameters.items()
        ]
        header = ["tokens per second", "parameters", *(f"texts of {n:,}" for n in self.sizes.lengths)]
        return [in_columns(header, rows), *super().tables()]

    def remarks(self) -> list[str]:
        agreement = largest_difference([self.agreement])
        return [
            "Linear is LrpeConfig() at these sizes. Softmax has SDPA, RoPE, the same gate and convolution, no decay;",
            "with the gated decay it differs from linear in attention and steps alone. Llama is transformers' own of",
            "these sizes, without the gate and the convolution.",
            f"Before timing, linear gave the logits and gradients of its n × n matrix to a relative {agreement:.0e}.",
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


def measure(quick: bool = False, rounds: int | None = None) -> _LanguageResult:
    """Check the default model against its n × n matrix, then time training steps of all models in turns."""
    rounds, sizes = rounds or (1 if quick else 5), QUICK if quick else _FULL
    marks, speeds = stamp("transformers"), []
    agreement = check(build(LINEAR, sizes), draw(sizes, min(sizes.lengths))[:1])
    lines = collect(line for n in sizes.lengths for line in _measure_length(n, sizes, rounds, speeds))
    return _LanguageResult(quick, rounds, read_settings(), marks, lines, sizes, speeds, agreement)


def _measure_length(n: int, sizes: _Sizes, rounds: int, speeds: list[_Speed]) -> Iterator[Line]:
    """Yield linear ÷ every other model at this length, and append the speed of each to ``speeds``."""
    models = {name: build(name, sizes) for name in (*_CHANGES, LLAMA)}
    print(f"Timing {rounds} rounds of texts of {n} tokens.", file=sys.stderr, flush=True)
    ids = draw(sizes, n)
    batch = {"input_ids": ids, "labels": ids, "use_cache": False}
    turns = take_turns({name: training_step(model, batch) for name, model in models.items()}, rounds)
    for name, model in models.items():
        parameters = sum(parameter.numel() for parameter in model.parameters())
        speeds.append(_Speed(name, parameters, n, ids.numel() / turns.median(name)))
    yield from compare(turns, n)


def compare(turns: Turns, n: int) -> Iterator[Line]:
    """Yield linear ÷ every other model, with a goal beside softmax attention without a decay."""
    for name in turns.seconds:
        if name != LINEAR:
            goal = GOALS.get(n) if name == SOFTMAX else None
            ratio = turns.ratio(LINEAR, name)
            yield line_from(ratio, f"training step ÷ {name}'s", f"{n:,} tokens", goal, turns.processor_share)


def build(name: str, sizes: _Sizes) -> Any:
    """Return the default model, one that differs in its attention alone, or transformers' Llama."""
    torch.manual_seed(0)
    if name == LLAMA:
        from transformers import LlamaConfig, LlamaForCausalLM

        longest = max(sizes.lengths)
        return place(LlamaForCausalLM(LlamaConfig(**sizes.fields(), max_position_embeddings=longest))).train()
    from lrpe.models import LrpeConfig, LrpeForCausalLM

    return place(LrpeForCausalLM(LrpeConfig(**sizes.fields(), **_CHANGES[name]))).train()


def draw(sizes: _Sizes, n: int) -> Tensor:
    """Return random tokens, in texts of n."""
    generator = torch.Generator().manual_seed(0)
    return place(torch.randint(sizes.vocabulary, (sizes.tokens // n, n), generator=generator))


def check(model: Any, ids: Tensor) -> Agreement:
    """Compare the logits of a text and their gradient at its embeddings: the fast sum against the n × n matrix."""
    x = model.get_input_embeddings()(ids).detach()
    sides = (_logits_of(model), _logits_of(specified(model, causal=True)))
    return check_agreement((LINEAR, "its matrix"), sides, x, _TOLERANCE, "logits")


def _logits_of(model: Any):
    """Return the model as a function of embeddings."""
    return lambda x: model(inputs_embeds=x, use_cache=False).logits
