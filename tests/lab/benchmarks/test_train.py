import copy
from functools import partial

import pytest
import torch

from lrpe.attention.choices import Quadratic
from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import train
from lrpe.lab.benchmarks.timing import Ratio
from lrpe.lab.benchmarks.train import GOALS, QUICK, SEEN, TrainResult, measure, row_of
from lrpe.lab.experiments.methods import SEVEN
from lrpe.lab.experiments.paper import SPEED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quick() -> TrainResult:
    return measure(quick=True, rounds=1)


def test_the_rows_are_the_papers_with_its_numbers_beside(quick):
    assert tuple(row.method for row in quick.rows) == SEVEN
    assert {row.method: (row.paper,) for row in quick.rows} == SPEED
    text = str(quick)
    assert all(row.title in text and f"{row.paper:.2f}" in text for row in quick.rows)
    assert "≥" not in text  # tiny models are not judged


def test_types_one_to_three_have_goals_to_reach(quick):
    goals = {line.row: line for line in quick.lines if line.goal is not None}
    assert {name: line.goal for name, line in goals.items()} == {
        f"steps, Type {k} ÷ Base's": goal for k, goal in ((1, 0.93), (2, 0.97), (3, 0.97))
    }
    assert all(line.verdict == ("pass" if line.figure >= line.goal else "short") for line in goals.values())


def test_memory_stands_beside_time(quick):
    base = quick.rows[0]
    assert (base.title, base.memory) == ("Base", 1.0)
    assert all(row.bytes > 0 and row.memory == row.bytes / base.bytes for row in quick.rows)
    type1, type2 = (next(row for row in quick.rows if row.method == name) for name in ("type1", "type2"))
    assert type1.bytes > type2.bytes  # twice the features


def test_every_model_was_checked_against_its_matrix(quick):
    assert [agreement.sides for agreement in quick.agreements] == [(row.title, "its matrix") for row in quick.rows]
    assert "gave the logits and gradients of n × n attention" in str(quick)


def test_a_relative_speed_is_the_inverse_of_a_time():
    row = row_of("type2", Ratio(ratio=1.25, low=1.0, high=2.0, seconds=0.5), {"base": 100, "type2": 150})
    assert (row.speed.ratio, row.speed.low, row.speed.high, row.speed.seconds) == (0.8, 0.5, 1.0, 0.5)
    assert row.memory == 1.5


@pytest.mark.parametrize(("speed", "word"), [(0.98, "pass"), (0.96, "short")])
def test_a_type_passes_from_its_goal_on(speed, word):
    row = row_of("type2", Ratio(1 / speed, 1 / speed, 1 / speed, 0.5), {"base": 1, "type2": 1})
    assert [line.verdict for line in row.lines("here", 1.0)] == [word, ""]
    assert GOALS["type2"] == 0.97


def test_some_rows_are_beside_base():
    assert train.find_rows(["type3", "rope"]) == ["base", "type3", "rope"]
    assert train.find_rows([]) == list(SEVEN)
    with pytest.raises(LrpeError, match="no row of the paper's table of speed named 'type4'"):
        train.find_rows(["type4"])


def test_a_model_with_another_answer_is_not_timed(monkeypatch):
    def slanted(model, causal=False):
        changed = copy.deepcopy(model)
        for block in changed.model.layers:
            block.attention.summation = Quadratic(causal=True)
        return changed

    monkeypatch.setattr(train, "specified", slanted)
    monkeypatch.setattr(train, "interleave", lambda *_, **__: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match="Base and its matrix differ"):
        measure(quick=True)


def test_all_rows_have_one_normaliser_and_base_alone_absolute_positions():
    configs = {name: train.build(name, QUICK).config for name in SEVEN}
    assert {config.normalizer for config in configs.values()} == {"plain"}
    assert {name for name, config in configs.items() if config.absolute_positions} == {"base"}
    assert not any(config.causal or config.hidden_dropout_prob for config in configs.values())


def test_a_step_learns_the_hidden_tokens():
    batch, model = train.draw(QUICK), train.build("type2", QUICK)
    hidden = batch["labels"] != SEEN
    assert 0 < hidden.float().mean() < 0.3
    assert (batch["input_ids"][hidden] == QUICK.vocabulary - 1).all()
    assert (batch["input_ids"][~hidden] != QUICK.vocabulary - 1).all()
    step, before = train.training_step(model, batch), model(**batch).loss
    for _ in range(20):
        step()
    assert model(**batch).loss < before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.isfinite(model(**batch).loss)


def test_a_compiled_model_is_timed_beside_itself(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # inductor takes a minute
    result = measure(quick=True, rounds=1, rows=["base"], compiled=True)
    assert [line.row for line in result.compiled] == ["steps, Base compiled ÷ Base"]
    assert result.compiled[0].figure > 0
    assert "Base compiled" in str(result)
