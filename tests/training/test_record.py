"""The folder of a run tells what it is, and is written to by one run at a time."""

import json

import pytest
import yaml

from lrpe import LrpeError
from lrpe.training.record import Record
from tests.training.small_run import run


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    Record(tmp_path, {"a": {"b": 1}}).begin()
    with pytest.raises(LrpeError, match=r"another configuration \(a.b: 1 there, 2 now\)"):
        Record(tmp_path, {"a": {"b": 2}}).begin()


def test_how_a_run_is_computed_may_change_and_is_told(tmp_path):
    Record(tmp_path, {"training": {"micro_batch": 0, "parallel": "ddp", "seed": 1}}).begin()
    Record(tmp_path, {"training": {"micro_batch": 4, "parallel": "fsdp", "seed": 1}}).begin()
    assert "training.micro_batch: 0 there, 4 now" in (tmp_path / "train.log").read_text()


def test_a_record_tells_where_it_ran_and_on_what_data(tmp_path):
    Record(tmp_path, {"sizes": (1, 2)}).begin({"data": {"sha256": "abc"}})
    told = json.loads((tmp_path / "environment.json").read_text())
    assert told["data"] == {"sha256": "abc"}
    assert {"python", "commit", "versions", "processor"} <= told.keys()
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == {"sizes": [1, 2]}
    Record(tmp_path, {"sizes": (1, 2)}).begin({"data": {"sha256": "def"}})
    assert "data.sha256: abc there, def now" in (tmp_path / "train.log").read_text()


def test_a_half_written_line_does_not_count_and_is_gone_when_the_run_goes_on(tmp_path):
    record = Record(tmp_path, {})
    record.add(update=1, loss=0.5)
    record.add(update=2, loss=0.4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "lo')
    assert [line["update"] for line in record.metrics()] == [1, 2]
    record.forget_after(1)
    record.add(update=2, loss=0.3)
    assert record.metrics() == [{"update": 1, "loss": 0.5}, {"update": 2, "loss": 0.3}]


def test_a_folder_is_trained_in_by_one_run_at_a_time(tmp_path):
    with (
        Record(tmp_path, {"name": "small"}).alone(),
        pytest.raises(LrpeError, match="is being trained by another process"),
    ):
        run(tmp_path)
    run(tmp_path)
