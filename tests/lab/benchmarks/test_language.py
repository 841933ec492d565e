import pytest
import torch

from lrpe.attention.choices import Quadratic
from lrpe.attention.linear import LinearAttention
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import language
from lrpe.lab.benchmarks.language import DECAYED, LINEAR, LLAMA, QUICK, SOFTMAX, measure
from lrpe.lab.benchmarks.turns import Turns
from lrpe.models import LrpeConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quick():
    return measure(quick=True)


def test_every_model_is_timed_at_every_length(quick):
    timed = [(speed.model, speed.length) for speed in quick.speeds]
    assert timed == [(name, n) for n in QUICK.lengths for name in (LINEAR, SOFTMAX, DECAYED, LLAMA)]
    assert all(speed.tokens_per_second > 0 and speed.parameters > 0 for speed in quick.speeds)
    assert [line.row for line in quick.lines] == [
        f"training step ÷ {name}'s" for name, _ in timed if name != LINEAR
    ]  # fmt: skip


def test_the_text_has_parameters_and_speeds_by_model(quick):
    table = str(quick).split("\n\n")[1].splitlines()
    assert table[0].split() == ["tokens", "per", "second", "parameters", "texts", "of", "16", "texts", "of", "64"]
    (decayed,) = [line for line in table if line.startswith(DECAYED)]
    assert len(decayed.removeprefix(DECAYED).split()) == 3


def test_linear_is_the_default_and_softmax_differs_in_its_attention_alone():
    models = {name: language.build(name, QUICK) for name in (LINEAR, SOFTMAX, DECAYED)}
    usual, own = LrpeConfig(), models[LINEAR].config
    for name in ("encoding", "decay", "output_gate", "convolution", "normalizer"):
        assert getattr(own, name) == getattr(usual, name)
    assert all(isinstance(block.attention, LinearAttention) for block in models[LINEAR].model.layers)
    for name in (SOFTMAX, DECAYED):
        assert all(isinstance(block.attention, SoftmaxAttention) for block in models[name].model.layers)
        assert models[name].config.output_gate == own.output_gate
        assert models[name].config.convolution == own.convolution
    assert (models[SOFTMAX].config.decay, models[DECAYED].config.decay) == (None, own.decay)


def test_a_default_that_differs_from_its_matrix_is_not_timed(monkeypatch):
    def blind(model, causal):
        (changed := language.build(LINEAR, QUICK)).load_state_dict(model.state_dict())
        for block in changed.model.layers:
            block.attention.summation = Quadratic(causal=not causal)
        return changed

    monkeypatch.setattr(language, "specified", blind)
    monkeypatch.setattr(language, "take_turns", lambda *_: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match="linear and its matrix differ"):
        measure(quick=True)


@pytest.mark.parametrize(("seconds", "verdict"), [(2.0, "pass"), (3.0, "short")])
def test_the_default_must_not_be_slower_than_softmax_from_2048_tokens_on(seconds, verdict):
    turns = Turns({LINEAR: [seconds], SOFTMAX: [2.0], LLAMA: [1.0]}, 1.0)
    softmax, llama = language.compare(turns, 2048)
    assert (softmax.goal, softmax.verdict) == (1.0, verdict)
    assert (llama.goal, llama.figure) == (None, seconds)
    assert all(line.goal is None for line in language.compare(turns, 512))


def test_steps_have_the_same_number_of_tokens_at_every_length():
    assert {language.draw(QUICK, n).numel() for n in QUICK.lengths} == {QUICK.tokens}
    assert torch.equal(language.draw(QUICK, 16), language.draw(QUICK, 16))
