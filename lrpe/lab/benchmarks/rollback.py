"""What rollback costs when a model decodes: time per token, memory, and taking back half of a call."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from lrpe.lab.benchmarks.lines import Line, time_beside

TOKENS = 8  # that can be taken back, about as many as assisted generation proposes


def measure_rollback(model: Any, ids: Tensor, at: str, rounds: int) -> Iterator[Line]:
    """Yield the cost of a cache with rollback ÷ one without, after a prompt ids (1, n) of at least 8 tokens."""
    from lrpe.models import LrpeCache

    layers = model.config.num_hidden_layers
    plain, able = LrpeCache(layers), LrpeCache(layers, rollback=TOKENS)
    for cache in (plain, able):
        model(ids, past_key_values=cache, logits_to_keep=1)

    def read(cache: Any, tokens: int, back: int = 0) -> None:
        model(ids[:, :tokens], past_key_values=cache, logits_to_keep=1)
        if back:
            cache.crop(-back)  # the rest of the call is read again at the next one

    for _ in range(TOKENS):  # then the prompt, which counts as one call, is no longer kept
        read(able, 1)
    one, many = f"each token with a rollback of {TOKENS} ÷ without", f"{TOKENS} tokens, half taken back ÷ all kept"
    yield time_beside(one, at, None, lambda: read(able, 1), lambda: read(plain, 1), rounds)
    memory = able.nbytes / plain.nbytes
    yield Line(f"cache with a rollback of {TOKENS} ÷ without", at, None, "", memory)
    half = TOKENS // 2
    yield time_beside(many, at, None, lambda: read(able, TOKENS, half), lambda: read(plain, TOKENS), rounds)
