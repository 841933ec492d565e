import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import decode
from lrpe.lab.benchmarks.decode import QUICK, measure, measure_rollback
from lrpe.models import LrpeCache


def test_every_vocabulary_has_a_line_for_the_prompt_the_tokens_and_the_cache():
    result = measure(quick=True)
    contexts = {f"context {n}" for n in QUICK.contexts}
    assert {line.at for line in result.lines} - contexts == {f"vocabulary {size}" for size in QUICK.vocabularies}
    beside = [line.row for line in result.lines if line.at in contexts]
    assert beside == ["token ÷ softmax's", "token ÷ Llama's"] * len(contexts)
    rows = [line.row for line in result.lines if line.at == "vocabulary 256"]
    assert [row.split()[0] for row in rows] == ["prompt", "limit:", "each", "cache", "cache", "each", "cache", "8"]
    assert all(line.figure is not None and line.figure > 0 for line in result.lines)
    assert str(result.stamp["versions"]["transformers"]) in str(result)
    speeds = {(speed.model, speed.context): speed.tokens_per_second for speed in result.speeds}
    assert list(speeds) == [(model, n) for n in QUICK.contexts for model in ("linear", "softmax", "Llama")]
    table = str(result).split("\n\n")[1]
    assert f"{speeds['linear', QUICK.contexts[0]]:.3g}" in table.splitlines()[2]


def test_the_state_of_linear_attention_does_not_grow_and_softmax_has_more():
    grown = [line for line in measure(quick=True).lines if line.row.startswith(("cache after", "cache ÷"))]
    assert [line.figure for line in grown[::2]] == [1.0, 1.0]
    assert all(line.figure is not None and line.figure < 1 for line in grown[1::2])


def test_a_rollback_of_8_keeps_eight_states_more_and_the_inputs_of_eight_tokens():
    model = decode.build("linear", 256, QUICK)
    with torch.inference_mode():
        _, memory, _ = measure_rollback(model, decode.draw(256, 16), "vocabulary 256", rounds=1)
    assert memory.figure is not None
    assert 9 < memory.figure < 10


def test_the_limit_is_every_product_of_the_prompt_with_the_weights_and_nothing_else():
    model, multiplied = decode.build("linear", 256, QUICK), []
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(lambda _, inputs, out, name=name: multiplied.append((name, out.shape[:2])))
    limit = decode.products(model, tokens=3)
    model(decode.draw(256, 3), logits_to_keep=1)
    (output, _), *trunk = sorted(multiplied)
    multiplied.clear()
    limit()
    assert output == "lm_head"
    assert sorted(multiplied) == trunk


def test_a_cache_that_forgets_is_not_timed(monkeypatch):
    monkeypatch.setattr(LrpeCache, "states", property(lambda cache: [None] * len(cache.layers)))
    with torch.inference_mode(), pytest.raises(LrpeError, match="same logits is timed; these differ by"):
        decode.check_cache(decode.build("linear", 256, QUICK), 256)
