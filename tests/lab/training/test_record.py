"""The folder of a run tells what it is, and is written to by one run at a time."""

import json
import math

import pytest
import yaml

from lrpe import LrpeError
from lrpe.lab.training.record import Record, is_running
from lrpe.lab.training.run_files import RunInfo, read_metrics, read_run_info
from tests.lab.training.small_run import run


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    Record(tmp_path, {"a": {"b": 1}}).begin()
    with pytest.raises(LrpeError, match=r"another configuration \(a.b: 1 there, 2 now\)"):
        Record(tmp_path, {"a": {"b": 2}}).begin()


def test_how_a_run_is_computed_may_change_and_is_told(tmp_path):
    Record(tmp_path, {"training": {"micro_batch": 0, "parallel": "ddp", "seed": 1}}).begin()
    Record(tmp_path, {"training": {"micro_batch": 4, "parallel": "fsdp", "seed": 1}}).begin()
    assert "training.micro_batch: 0 there, 4 now" in (tmp_path / "train.log").read_text()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"model": {}}, {"model": {"decay": None}}, "model.decay: absent there, null now"),
        ({"model": {"decay": None}}, {"model": {}}, "model.decay: null there, absent now"),
        ({"a": None}, {"a": {}}, "a: null there, {} now"),
        ({"a": {}}, {}, "a: {} there, absent now"),
        ({"a": []}, {"a": None}, r"a: \[\] there, null now"),
        ({"model": {"workers": 1}}, {"model": {"workers": 2}}, "model.workers: 1 there, 2 now"),
    ],
)
def test_nothing_null_and_an_empty_value_are_three_configurations(tmp_path, before, after, said):
    Record(tmp_path, before).begin()
    Record(tmp_path, before).begin()
    with pytest.raises(LrpeError, match=said):
        Record(tmp_path, after).begin()


def test_a_record_tells_where_it_ran_and_on_what_data(tmp_path):
    Record(tmp_path, {"sizes": (1, 2)}).begin(RunInfo({"sha256": "abc"}, "accuracy", "higher"))
    told = json.loads((tmp_path / "environment.json").read_text())
    assert told["data"] == {"sha256": "abc"}
    assert {"python", "commit", "versions", "processor"} <= told.keys()
    assert read_run_info(tmp_path) == RunInfo({"sha256": "abc"}, "accuracy", "higher")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == {"sizes": [1, 2]}


def test_data_that_changed_under_a_run_stop_it_and_the_way_on_is_told(tmp_path):
    Record(tmp_path, {}).begin(RunInfo({"sha256": "abc", "splits": {"train": 3}}))
    with pytest.raises(LrpeError, match=r"differ from the data it started with \(sha256: abc there, def now\).*--from"):
        Record(tmp_path, {}).begin(RunInfo({"sha256": "def", "splits": {"train": 3}}))
    Record(tmp_path, {}).begin(RunInfo({"sha256": "abc", "splits": {"train": 3}, "more": "what nobody noted then"}))


def test_a_damaged_line_costs_itself_alone_and_is_told(tmp_path, capsys):
    record = Record(tmp_path, {})
    for update in range(1, 4):
        record.add(update=update, loss=update / 2)
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines()
    for damage in (
        lines[1][:9],
        b"\xff\x00",
        b"[" * 2000,
        b"3",
        b'{"update": NaN}',
        b'{"update": 2, "loss": "x"}',
        b"",
    ):
        (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
        found, damaged = read_metrics(tmp_path)
        assert found == [{"update": 1, "loss": 0.5}, {"update": 3, "loss": 1.5}]
        assert [text.startswith("Line 2 of ") for text in damaged] == [True]
    record.drop_metrics_after(1)
    assert "Line 2 of" in capsys.readouterr().err
    assert "Line 2 of" in (tmp_path / "train.log").read_text()
    record.add(update=2, loss=0.25)
    assert read_metrics(tmp_path) == ([{"update": 1, "loss": 0.5}, {"update": 2, "loss": 0.25}], [])


def test_metrics_are_json_that_every_parser_reads(tmp_path):
    def refuse(word):
        raise AssertionError(word)

    Record(tmp_path, {}).add(update=1, loss=math.nan, norm=math.inf, rate=0.5)
    (text,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(text, parse_constant=refuse) == {"update": 1, "loss": None, "norm": None, "rate": 0.5}
    ((line,), _) = read_metrics(tmp_path)
    assert math.isnan(line["loss"])
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "loss": NaN}\n')  # as earlier versions wrote it
    assert math.isnan(read_metrics(tmp_path)[0][0]["loss"])


def test_a_link_in_a_strangers_folder_is_not_written_through(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    for name in ("metrics.jsonl", "train.log"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).symlink_to(theirs)
    record = Record(tmp_path / "run", {})
    with pytest.raises(LrpeError, match="could not be written"):
        record.add(update=1)
    with pytest.raises(LrpeError, match="could not be written"):
        record.log("text")
    assert theirs.read_text() == "kept"


def test_whether_a_run_is_under_way_is_known_by_its_lock(tmp_path):
    assert not is_running(tmp_path)
    with Record(tmp_path, {}).locked():
        assert is_running(tmp_path)
    assert not is_running(tmp_path)


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    (tmp_path / ".config.yaml.0123456789abcdef.tmp").write_text("half")
    with Record(tmp_path, {}).locked():
        assert not list(tmp_path.glob(".*.tmp"))


def test_a_folder_is_trained_in_by_one_run_at_a_time(tmp_path):
    with (
        Record(tmp_path, {"name": "small"}).locked(),
        pytest.raises(LrpeError, match="is being trained by another process"),
    ):
        run(tmp_path)
    run(tmp_path)
