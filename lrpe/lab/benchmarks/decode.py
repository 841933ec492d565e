"""``lrpe bench decode``: prefill and decoding of a language model, linear attention ÷ softmax with a static cache."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.state import DecodingState, KeyValueState, ReservedState
from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Call, Line, collect, judge, line_from, line_of, time_beside
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import Timed, clock, interleave, summarise, warn_if_busy
from lrpe.lab.stamp import stamp

_TOLERANCE = 1e-3  # relative, for float32 logits: token by token against the whole text at once


@dataclass(frozen=True)
class _Sizes:
    width: int
    layers: int
    heads: int
    inner: int
    vocabularies: tuple[int, ...]
    prompt: int
    tokens: int
    contexts: tuple[int, ...]  # lengths of the texts after which tokens are decoded


_FULL = _Sizes(512, 6, 8, 1408, (256, 50257), 8192, 512, (1024, 8192, 32768))
QUICK = _Sizes(32, 2, 2, 64, (256, 300), 64, 32, (64, 128))
_PROMPT_GOAL, _TOKEN_GOAL, _CACHE_GOAL = 1 / 5, 1 / 2.5, 1.0
_CONTEXT_GOALS = {("softmax", 8192): 0.22}
_ROLLBACK = 8  # tokens that can be taken back, about as many as assisted generation proposes
_BLOCKS = 8  # linear and softmax take turns, in this many blocks of tokens


@dataclass(frozen=True)
class _Speed:
    """How fast a model decodes after a text."""

    model: str
    context: int
    tokens_per_second: float


@dataclass(frozen=True)
class _DecodeResult(Measurement):
    benchmark = "decode"
    sizes: _Sizes
    agreement: float
    speeds: list[_Speed]

    def title(self) -> list[str]:
        layers, width, heads, inner = self.sizes.layers, self.sizes.width, self.sizes.heads, self.sizes.inner
        return [
            "Prefill and decoding in float32: linear attention's time ÷ softmax's; lower is better.",
            f"{layers} layers, width {width}, {heads} heads, feed-forward {inner}, gated, batch 1.",
            f"Medians of {self.rounds} prompts and of {_BLOCKS} blocks of tokens, quartiles in brackets.",
        ]

    def tables(self) -> list[str]:
        found = {(speed.model, speed.context): f"{speed.tokens_per_second:.3g}" for speed in self.speeds}
        models, contexts = (list(dict.fromkeys(column)) for column in zip(*found, strict=True))
        rows = [[model, *(found[model, context] for context in contexts)] for model in models]
        return [in_columns(["tokens per second after", *(f"{n:,}" for n in contexts)], rows), *super().tables()]

    def remarks(self) -> list[str]:
        sizes = self.sizes
        flops = 2 * sizes.prompt * sizes.layers * (4 * sizes.width**2 + 3 * sizes.width * sizes.inner)
        return [
            "Linear is LrpeConfig() at these sizes; softmax has SDPA, RoPE, no decay, the same gate and "
            "convolution, and a preallocated cache.",
            f"Before timing, both gave the same logits with and without a cache, to a relative {self.agreement:.0e}.",
            "Llama is transformers' own of these sizes, with the cache that generate() gives it.",
            "At each context, the caches of softmax and Llama hold random keys and values.",
            f"Both multiply by the same weights, {flops / 1e9:.0f} GFLOP for the prompt: a bound for any attention.",
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


@torch.inference_mode()
def measure(quick: bool = False, rounds: int | None = None) -> _DecodeResult:
    """Check that each model gives the same logits with and without its cache, then time them side by side."""
    rounds, sizes = rounds or (1 if quick else 3), QUICK if quick else _FULL
    marks, lines, apart = stamp("transformers"), [], 0.0
    for vocabulary in sizes.vocabularies:
        sides = {kind: build(kind, vocabulary, sizes) for kind in ("linear", "softmax")}
        apart = max(apart, *(check_cache(model, vocabulary) for model in sides.values()))
        lines += collect(_measure_sides(sides, vocabulary, sizes, rounds))
        if vocabulary == sizes.vocabularies[0]:
            ids, at = draw(vocabulary, sizes.prompt // 8), f"vocabulary {vocabulary}"
            lines += collect(measure_rollback(sides["linear"], ids, at, 3 * rounds))
    speeds: list[_Speed] = []
    lines += collect(_measure_contexts(sizes, speeds.append))
    return _DecodeResult(quick, rounds, read_settings(), marks, lines, sizes, apart, speeds)


def build(kind: str, vocabulary: int, sizes: _Sizes):
    """Return the default model, or the same with softmax attention and RoPE; a decay would only slow softmax."""
    from lrpe.models import LrpeConfig, LrpeForCausalLM

    torch.manual_seed(0)
    chosen = {} if kind == "linear" else {"attention": "softmax", "encoding": "rope", "decay": None}
    config = LrpeConfig(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        **chosen,
    )
    return place(LrpeForCausalLM(config)).eval()


def check_cache(model: Any, vocabulary: int) -> float:
    """Return the relative difference between logits with and without the cache.

    Raises:
        LrpeError: it is larger than the tolerance.
    """
    ids = draw(vocabulary, 40)
    whole = model(ids, use_cache=False).logits
    parts, cache = [], _empty_cache(model, 40)
    for part in (ids[:, :33], *ids[:, 33:].split(1, 1)):
        parts.append(model(part, past_key_values=cache).logits)
    apart = float((torch.cat(parts, 1) - whole).abs().max() / whole.abs().max())
    require(
        apart <= _TOLERANCE,
        f"Only a cache that gives the same logits is timed; these differ by {apart:.1e}.",
    )
    return apart


def _measure_sides(sides: dict[str, Any], vocabulary: int, sizes: _Sizes, rounds: int) -> Iterator[Line]:
    ids, room, at = draw(vocabulary, sizes.prompt), sizes.prompt + 2 * sizes.tokens, f"vocabulary {vocabulary}"
    caches = {kind: _empty_cache(model, room) for kind, model in sides.items()}

    def read(kind: str) -> Tensor:
        caches[kind].reset()
        return sides[kind](ids, past_key_values=caches[kind], logits_to_keep=1).logits

    tasks = [Timed("prompt", lambda: read("linear")), Timed("limit", products(sides["linear"], sizes.prompt))]
    timing = interleave(tasks, lambda: read("softmax"), rounds, calls=1)
    yield line_of(timing, "prompt", f"prompt of {sizes.prompt} tokens ÷ softmax", at, _PROMPT_GOAL)
    yield line_of(timing, "limit", "limit: its products with the weights alone ÷ softmax", at, None)
    before = caches["linear"].nbytes
    pairs = [_write_beside(sides, caches, sizes.tokens // _BLOCKS) for _ in range(_BLOCKS + 1)][
        1:
    ]  # the first warms up
    yield line_from(summarise(pairs), f"each of {sizes.tokens} tokens after it ÷ softmax", at, _TOKEN_GOAL)
    grown = caches["linear"].nbytes / before
    yield Line("cache after the tokens ÷ before them", at, _CACHE_GOAL, judge(grown, _CACHE_GOAL), grown)
    share = caches["linear"].nbytes / caches["softmax"].nbytes
    yield Line("cache ÷ softmax's", at, None, "", share)


def products(model: Any, tokens: int) -> Call:
    """Return a call that does the trunk's matrix products for ``tokens`` tokens and nothing else."""
    layers = [module for module in model.model.modules() if isinstance(module, nn.Linear)]
    inputs = {width: place(torch.randn(1, tokens, width)) for width in {layer.in_features for layer in layers}}

    def run() -> None:
        for layer in layers:
            layer(inputs[layer.in_features])

    return run


def _measure_contexts(sizes: _Sizes, keep: Callable[[_Speed], None]) -> Iterator[Line]:
    """Yield a token's time beside softmax and beside transformers' Llama, after texts of several lengths.

    ``keep`` is called with the speed of each.
    """
    vocabulary = sizes.vocabularies[0]
    sides = {kind: build(kind, vocabulary, sizes) for kind in ("linear", "softmax")} | {"Llama": _llama(sizes)}
    for context in sizes.contexts:
        caches = {kind: _filled_cache(kind, model, context, sizes) for kind, model in sides.items()}
        rounds = [_write_each(sides, caches, max(sizes.tokens // 64, 1)) for _ in range(_BLOCKS + 1)][1:]
        for kind in sides:
            keep(_Speed(kind, context, 1 / median(seconds[kind] for seconds in rounds)))
        for other in ("softmax", "Llama"):
            pairs = [(seconds["linear"] / seconds[other], seconds["linear"]) for seconds in rounds]
            goal = _CONTEXT_GOALS.get((other, context))
            yield line_from(summarise(pairs), f"token ÷ {other}'s", f"context {context}", goal)


def _llama(sizes: _Sizes) -> Any:
    """Return transformers' Llama of the same sizes, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes.vocabularies[0],
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        max_position_embeddings=2 * max(sizes.contexts),
    )
    return place(LlamaForCausalLM(config)).eval()


def _filled_cache(kind: str, model: Any, context: int, sizes: _Sizes) -> Any:
    """Return a cache after ``context`` tokens: a token's time depends on their number, not on what they were.

    Softmax models have random keys and values, as reading the text itself would take minutes.
    """
    if kind == "linear":
        cache = _empty_cache(model, 0)
        model(draw(sizes.vocabularies[0], 2), past_key_values=cache)
        for layer in cache.of_layers:
            assert isinstance(layer.state, DecodingState)
            layer.state, layer.seen = layer.state._replace(position=place(torch.full((1,), context))), context
        return cache
    shape = (1, sizes.heads, context, sizes.width // sizes.heads)
    if kind == "Llama":
        from transformers import DynamicCache

        cache = DynamicCache(config=model.config)
        for layer in range(sizes.layers):
            cache.update(place(torch.randn(shape)), place(torch.randn(shape)), layer)
        return cache
    cache = _empty_cache(model, context + sizes.tokens)
    attentions = [module for module in model.modules() if isinstance(module, SoftmaxAttention)]
    for layer, attention in zip(cache.of_layers, attentions, strict=True):
        keys, values, positions = torch.randn(shape), torch.randn(shape), torch.arange(context)[None]
        window = None if attention.convolution is None else attention.convolution.empty_window(1)
        state = KeyValueState(place(keys), place(values), place(positions), None, window=window)
        layer.state, layer.seen = ReservedState(state, cache.room), context
    return cache


def _write_beside(sides: dict[str, Any], caches: dict[str, Any], tokens: int) -> tuple[float, float]:
    """Decode greedily with each; return linear ÷ softmax, and linear's seconds per token."""
    seconds = _write_each(sides, caches, tokens)
    return seconds["linear"] / seconds["softmax"], seconds["linear"]


def _write_each(sides: dict[str, Any], caches: dict[str, Any], tokens: int) -> dict[str, float]:
    """Decode greedily with each; return the seconds per token."""
    seconds = {}
    for kind, model in sides.items():
        token = draw(256, 1)
        start = clock()
        for _ in range(tokens):
            token = model(token, past_key_values=caches[kind]).logits.argmax(-1)
        seconds[kind] = (clock() - start) / tokens
    return seconds


def _empty_cache(model: Any, room: int):
    from lrpe.models import LrpeCache

    return LrpeCache(model.config.num_hidden_layers, room)


def draw(vocabulary: int, n: int) -> Tensor:
    return place(torch.randint(vocabulary, (1, n), generator=torch.Generator().manual_seed(0)))


def measure_rollback(model: Any, ids: Tensor, at: str, rounds: int) -> Iterator[Line]:
    """Yield the cost of a cache with rollback ÷ one without, after a prompt ids (1, n) of at least 8 tokens."""
    from lrpe.models import LrpeCache

    layers = model.config.num_hidden_layers
    plain, able = LrpeCache(layers), LrpeCache(layers, rollback=_ROLLBACK)
    for cache in (plain, able):
        model(ids, past_key_values=cache, logits_to_keep=1)

    def read(cache: Any, tokens: int, back: int = 0) -> None:
        model(ids[:, :tokens], past_key_values=cache, logits_to_keep=1)
        if back:
            cache.crop(-back)  # the rest of the call is read again at the next one

    for _ in range(_ROLLBACK):  # then the prompt, which counts as one call, is no longer kept
        read(able, 1)
    one, many = (
        f"each token with a rollback of {_ROLLBACK} ÷ without",
        f"{_ROLLBACK} tokens, half taken back ÷ all kept",
    )
    yield time_beside(one, at, None, lambda: read(able, 1), lambda: read(plain, 1), rounds)
    memory = able.nbytes / plain.nbytes
    yield Line(f"cache with a rollback of {_ROLLBACK} ÷ without", at, None, "", memory)
    half = _ROLLBACK // 2
    yield time_beside(many, at, None, lambda: read(able, _ROLLBACK, half), lambda: read(plain, _ROLLBACK), rounds)
