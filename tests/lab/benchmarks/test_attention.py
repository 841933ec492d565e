from dataclasses import replace

import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import attention, block, token_dependent
from lrpe.lab.benchmarks.attention import QUICK, AttentionResult, measure
from lrpe.lab.benchmarks.lines import Line
from lrpe.lab.benchmarks.peers import SumPeer, textbook_chunk_form
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.stamp import stamp

TEXTBOOK = SumPeer("textbook", None, textbook_chunk_form)


@pytest.fixture
def untimed(monkeypatch):
    """A measurement that comes to the timing fails."""
    monkeypatch.setattr(attention, "measure_lines", lambda *_: pytest.fail("timed all the same"))


def wrong(compute):
    return lambda *arguments: 1.01 * compute(*arguments)


def test_a_peer_with_another_answer_is_not_timed(monkeypatch, untimed):
    monkeypatch.setattr(attention, "causal_peers", lambda: [SumPeer("made up", None, wrong(textbook_chunk_form))])
    with pytest.raises(LrpeError, match="causal sum and made up differ"):
        measure(quick=True)


@pytest.mark.parametrize("name", ["our_causal", "our_sum", "softmax_causal", "softmax_everywhere"])
def test_a_sum_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed, name):
    monkeypatch.setattr(attention, name, wrong(getattr(attention, name)))
    with pytest.raises(LrpeError, match="its matrix differ"):
        measure(quick=True)


def test_a_block_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed):
    monkeypatch.setattr(block, "PHI", torch.nn.Softplus())
    with pytest.raises(LrpeError, match="block, Base and its matrix differ"):
        measure(quick=True)


def test_a_gate_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed):
    exact = token_dependent.attend
    monkeypatch.setattr(
        token_dependent, "attend", lambda encode, name, how: exact(encode, name if how == "causal" else None, how)
    )
    with pytest.raises(LrpeError, match="causal, gated decay and its matrix differ"):
        measure(quick=True)


def test_a_step_that_is_not_what_it_says_is_not_timed(monkeypatch, untimed):
    step = attention.one_token
    monkeypatch.setattr(attention, "one_token", lambda problem: step(problem._replace(v=2 * problem.v)))
    with pytest.raises(LrpeError, match="decoding step and its matrix differ"):
        measure(quick=True)


def test_a_peer_that_is_not_installed_is_reported_as_missing():
    lines = list(attention.measure_sum("causal", attention.our_causal, "absent", None, {8: 0.7}, QUICK, rounds=1))
    assert [(line.row, line.at, line.verdict) for line in lines] == [("causal ÷ absent", "N = 8", "missing")]
    (remark,) = [line for line in result_of(lines).remarks() if line.startswith("missing")]
    assert "absent not installed" in remark


def test_a_busy_machine_is_said_to_be_busy():
    quiet, disturbed = (Line("a ÷ b", "N", 1, "pass", 0.5, processor_share=share) for share in (1.0, 0.5))
    assert "busy" in str(result_of([quiet, disturbed]))
    assert "busy" not in str(result_of([quiet]))


def test_extra_memory_counts_the_output_and_the_gradients(monkeypatch):
    monkeypatch.setattr(attention, "our_causal", lambda q, k, v: q + k + v)
    line = attention.measure_memory(1024, 6, replace(QUICK, dim=64))
    assert 2 <= line.figure <= 4.1  # torch hands the same gradient on for each of the three
    assert line.verdict == "pass"


def result_of(lines):
    agreements = list(attention.check_sums(QUICK, [TEXTBOOK]))
    return AttentionResult(True, 1, read_settings(), stamp(), lines, agreements)
