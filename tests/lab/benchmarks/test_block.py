import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import block
from lrpe.lab.benchmarks.block import GOALS, QUICK, measure

pytestmark = pytest.mark.slow


def test_every_encoding_has_a_goal_and_base_is_not_slowed():
    result = measure(quick=True, rounds=1)
    judged = {line.row: line for line in result.lines if line.goal is not None}
    assert len(judged) == len(GOALS) + 1
    assert judged["block, Base ÷ Base's by hand"].goal == block.BASE_GOAL
    assert all(line.at == "2×2×32×16" for line in result.lines)
    assert result.to_dict()["benchmark"] == "block"
    assert "gave the outputs and gradients of their n × n matrix" in str(result)


@pytest.mark.parametrize("side", ["block", "base_by_hand"])
def test_a_block_with_another_answer_is_not_timed(monkeypatch, side):
    compute = getattr(block, side)
    changed = {
        "block": lambda *arguments: lambda q, k, v: 1.01 * compute(*arguments)(q, k, v),
        "base_by_hand": lambda q, k, v: 1.01 * compute(q, k, v),
    }
    monkeypatch.setattr(block, side, changed[side])
    monkeypatch.setattr(block, "measure_blocks", lambda *_: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match=r"block, Base.* differ"):
        measure(quick=True)


def test_a_ready_table_changes_the_time_alone():
    qkv = block.draw(QUICK)
    for kind in block.NAMES:
        made, ready = (block.block(make(kind, QUICK))(*qkv) for make in (block.fixed, block.ready))
        torch.testing.assert_close(made, ready)
