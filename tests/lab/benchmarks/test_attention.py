import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import attention, sides, step
from lrpe.lab.benchmarks.attention import QUICK, AttentionResult, measure
from lrpe.lab.benchmarks.limit import PRODUCT_FLOPS, causal_flops
from lrpe.lab.benchmarks.lines import Line
from lrpe.lab.benchmarks.peers import SumPeer
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.stages import LIMIT, SideTime, Stage
from lrpe.lab.benchmarks.turns import Turns
from lrpe.lab.stamp import stamp


@pytest.fixture
def untimed(monkeypatch):
    """A measurement that comes to the timing fails."""
    monkeypatch.setattr(attention, "measure_lines", lambda *_: pytest.fail("timed all the same"))


def wrong(compute):
    return lambda *arguments: 1.01 * compute(*arguments)


def test_a_peer_with_another_answer_is_not_timed(monkeypatch, untimed):
    made_up = SumPeer("made up", "none", wrong(attention._matrix_sum))
    monkeypatch.setattr(attention, "causal_peers", lambda: [made_up])
    with pytest.raises(LrpeError, match="made up and the n × n sum differ"):
        measure(quick=True)


@pytest.mark.parametrize("name", ["softmax_causal", "softmax_everywhere"])
def test_softmax_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed, name):
    monkeypatch.setattr(attention, name, wrong(getattr(attention, name)))
    with pytest.raises(LrpeError, match="SDPA and its matrix differ"):
        measure(quick=True)


@pytest.mark.parametrize("name", [sides.DEFAULT, *sides.OTHERS, sides.BIDIRECTIONAL])
def test_an_attention_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed, name):
    make = sides.make_side

    def make_wrong(asked, shape, summation=None):
        side = make(asked, shape, summation)
        return sides.Side(side.inputs, wrong(side.attend)) if asked == name and summation is None else side

    monkeypatch.setattr(sides, "make_side", make_wrong)
    with pytest.raises(LrpeError, match=f"{name} and its matrix differ"):
        measure(quick=True)


def test_a_step_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed):
    def wrong_state(q, k, v, *arguments, **options):
        out, state = right(q, k, v, *arguments, **options)
        return out, state and state._replace(S=1.01 * state.S)

    right = step.linear_attention
    monkeypatch.setattr(step, "linear_attention", wrong_state)
    with pytest.raises(LrpeError, match="decoding step and its matrix differ"):
        measure(quick=True)


def test_a_peer_that_is_not_installed_is_reported_as_missing():
    lines = list(attention._causal_lines(stage_of(default=1.0), [SumPeer("absent", "none", None)], 0.5))
    missing = [line for line in lines if line.verdict == "missing"]
    assert [line.row.partition(" ÷ ")[2] for line in missing] == ["torch engine", "absent"]
    (remark,) = [line for line in result_of(lines).remarks() if line.startswith("missing")]
    assert "absent: not installed" in remark
    assert "torch engine" not in remark


def test_the_limit_is_the_flops_of_the_sum_at_the_rate_of_the_product():
    stage = stage_of(default=3.0)
    line = stage.compare("default ÷ limit", "default", LIMIT, 1.6)
    assert line.figure == pytest.approx(3.0 / (0.5 * stage.products))  # a product takes half a second
    assert (line.engine, line.verdict) == ("native", "short" if line.figure > 1.6 else "pass")
    assert stage.gemm_rate == pytest.approx(PRODUCT_FLOPS / 0.5)
    assert {time.side: time.seconds for time in stage.times()}[LIMIT] == pytest.approx(0.5 * stage.products)


def test_a_busy_machine_is_said_to_be_busy():
    quiet, disturbed = (Line("a ÷ b", "N", 1, "pass", 0.5, processor_share=share) for share in (1.0, 0.5))
    assert "busy" in str(result_of([quiet, disturbed]))
    assert "busy" not in str(result_of([quiet]))


def test_the_tables_of_times_name_the_engine_and_leave_out_what_was_not_timed():
    times = [
        SideTime("causal", "forward", "default", "1×2×64×16", 0.25, "native"),
        SideTime("causal", "forward", LIMIT, "1×2×64×16", 0.125, None),
        SideTime("causal", "forward", "default", "1×2×128×16", 2.5, "native"),
    ]
    table = result_of([Line("a ÷ b", "N", 1, "pass", 0.5)], times).tables()[0]
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["default", "native", "250", "2500"],
        ["limit", "–", "125", "–"],
    ]


def test_extra_memory_counts_the_output_and_the_gradients(monkeypatch):
    shape = (1, 2, 1024, 64)
    side = sides.Side(sides.draw(shape), lambda q, k, v: q + k + v)
    monkeypatch.setattr(attention, "make_side", lambda *_: side)
    line = attention.measure_memory(shape)
    assert 2 <= line.figure <= 4.1  # torch hands the same gradient on for each of the three
    assert line.verdict == "pass"


def test_gated_and_selective_attention_depend_on_the_token():
    for name in ("gated decay", "selective steps"):
        side = sides.make_side(name, (1, 2, 16, 8))
        *_, gradient = torch.autograd.grad(side.attend(*(x.requires_grad_() for x in side.inputs)).sum(), side.inputs)
        assert gradient.shape == (1, 2, 16)
        assert gradient.abs().max() > 0


def stage_of(**seconds: float) -> Stage:
    """A stage whose sides took these seconds; SDPA and the others of ours took one, a matrix product half a second."""
    sides_of = dict.fromkeys((*sides.OTHERS, "SDPA"), 1.0) | seconds | {"matrix product": 0.5}
    turns = Turns({name: [time, time] for name, time in sides_of.items()}, 1.0)
    shape = (1, 2, 64, 16)
    engines = dict.fromkeys((sides.DEFAULT, *sides.OTHERS), "native")
    return Stage("causal", shape, True, turns, engines, causal_flops(shape, True) / PRODUCT_FLOPS)


def result_of(lines, times=()):
    agreements = list(attention.check_peers(QUICK.checked, []))
    return AttentionResult(True, 1, read_settings(), stamp(), lines, agreements, list(times), 1e11)
