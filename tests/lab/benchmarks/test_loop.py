import pytest

from lrpe.lab.benchmarks.loop import QUICK, WARM, build, measure, time_updates

pytestmark = pytest.mark.slow


def test_the_loop_is_measured_beside_the_model_and_resumed():
    result = measure(quick=True, rounds=2)
    assert [line.row for line in result.lines] == ["the loop ÷ forward, backward, step", "resuming, in seconds"]
    assert all(line.figure is not None and line.figure > 0 for line in result.lines)
    assert "metrics.jsonl" in str(result)
    assert result.to_dict()["benchmark"] == "loop"


def test_all_updates_but_the_first_are_counted(tmp_path):
    pairs, share = time_updates(build(QUICK, WARM + 4, tmp_path))
    assert len(pairs) == 3  # from the beginning of one to that of the next
    assert share > 0
