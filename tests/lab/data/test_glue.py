import gzip
import string
import sys
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data import catalog
from lrpe.lab.data.dataset import Draw
from lrpe.lab.data.glue.official import TASKS, load_glue, read_file
from lrpe.lab.data.glue.stand_ins import MAKERS, read_docstrings
from lrpe.lab.data.glue.stand_ins import load as load_embedded

OFFICIAL = {  # the first lines of each file, in its own layout
    "mnli": "index\tpromptID\tpairID\tgenre\ts1b\ts2b\ts1p\ts2p\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\t1\t1c\tfiction\tb\tb\tp\tp\tIt rains.\tThe sun shines.\tneutral\tcontradiction\n",
    "qnli": "index\tquestion\tsentence\tlabel\n0\tWhat rains?\tIt rains water.\tentailment\n",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tWhy?\tWhat for?\t1\n",
    "rte": "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is dry.\tnot_entailment\n",
    "sst2": 'sentence\tlabel\na " charming journey \t1\n',
    "mrpc": "﻿Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tHe said .\tShe said .\n",
    "cola": "gj04\t1\t\tThe sailors rode the breeze.\ngj04\t0\t*\tThe rode breeze.\n",
    "stsb": "index\tgenre\tfilename\tyear\told\ts1\ts2\tsentence1\tsentence2\tscore\n"
    "0\tcaptions\tm\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t4.250\n",
}


@pytest.fixture
def glue(tmp_path):
    """GLUE's folder with a line or two in every file."""
    for name, text in OFFICIAL.items():
        folder = tmp_path / TASKS[name].folder
        folder.mkdir()
        for _, file in TASKS[name].files:
            (folder / file).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_read_from_its_own_layout(glue, task):
    found = load_glue(task, glue)
    assert set(found.splits) == {split for split, _ in TASKS[task].files}
    first = found.splits["train"].sample(Draw(0))
    assert (first["second"] is None) == (TASKS[task].second is None)
    expected = {"mnli": 2, "qnli": 0, "qqp": 1, "rte": 1, "sst2": 1, "mrpc": 0, "cola": 1, "stsb": 4.25}
    assert first["label"] == expected[task]
    assert first["first"] in found.show(first)
    assert load_glue(task, glue / TASKS[task].folder).facts == found.facts
    counted = 0 if TASKS[task].regression else len(found.splits["train"])
    assert sum(found.facts["balance"]["train"]) == counted


def test_a_quote_is_a_character_like_any_other(glue):
    assert load_glue("sst2", glue).splits["train"].sample(Draw(0))["first"] == 'a " charming journey'


def test_gzipped_files_are_read_too(glue):
    file = glue / "CoLA" / "train.tsv"
    (glue / "CoLA" / "train.tsv.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    assert len(load_glue("cola", glue).splits["train"]) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"index\tsentence1\tlabel\n0\ta\tentailment\n", "must have a column 'sentence2' in its header"),
        (b"index\tsentence1\tsentence2\tlabel\n0\t\xff\xfe\tb\tentailment\n", "Text is UTF-8; line 2 of .*train.tsv"),
        (b"index\tsentence1\tsentence2\tlabel\n", "no readable line"),
        (b"", "must have a column 'sentence1' in its header; got"),
        (
            b"index\tsentence1\tsentence2\tlabel\n" + b"0\ta\tb\tmaybe\n" * 9 + b"0\ta\tb\tentailment\n",
            "line 2: the label must be one",
        ),
        (b"index\tsentence1\tsentence2\tlabel\n" + b"0\ta\n" * 9 + b"0\ta\tb\tentailment\n", "9 of 10 lines"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(LrpeError, match=message):
        load_glue("rte", tmp_path)


def test_a_few_broken_lines_are_counted_and_skipped(tmp_path):
    lines = ["0\ta\tb\tentailment"] * 40 + ["0\ta", "0\ta\t\tentailment", "0\ta\tb\tmaybe"]
    (tmp_path / "train.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]))
    found = load_glue("rte", tmp_path)
    assert len(found.splits["train"]) == 40
    assert found.facts["broken lines"] == {"train": 3}


def test_a_damaged_archive_and_a_missing_file_are_named(tmp_path):
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(OFFICIAL["rte"].encode())[:-9])
    with pytest.raises(LrpeError, match=r"train.tsv.gz' cannot be read to its end"):
        load_glue("rte", tmp_path)
    (tmp_path / "train.tsv.gz").unlink()
    with pytest.raises(LrpeError, match="lacks all of them"):
        load_glue("rte", tmp_path)
    (tmp_path / "train.tsv").write_text(OFFICIAL["rte"])
    with pytest.raises(LrpeError, match=r"lacks \['dev.tsv'\]"):
        load_glue("rte", tmp_path, splits=("train", "validation"))
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(LrpeError, match=r"folder.tsv' is a folder"):
        read_file(tmp_path / "folder.tsv", TASKS["rte"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t"), max_size=8), max_size=6),
        max_size=12,
    )
)
def test_any_table_is_read_or_refused_and_nothing_else(tmp_path, table):
    text = "\n".join("\t".join(row) for row in table)
    (tmp_path / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{text}", encoding="utf-8", newline="")
    try:
        found, refusal = load_glue("rte", tmp_path).splits["train"].rows, None  # type: ignore[attr-defined]
    except LrpeError as error:
        found, refusal = [], str(error)
    assert refusal is None or "train.tsv" in refusal
    assert all(row["first"] and row["label"] in (0, 1) for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("task", MAKERS)
def test_the_stand_ins_have_the_shape_and_balance_of_their_tasks(task):
    found, about = load_embedded(task), TASKS[task]
    assert set(found.splits) == {split for split, _ in about.files}
    for split in found.splits.values():
        rows = [split.sample(Draw(i)) for i in range(len(split))]
        assert len(rows) > 200
        assert all((row["second"] is None) == (about.second is None) for row in rows)
        labels = [row["label"] for row in rows]
        if about.regression:
            assert 0 <= min(labels) < 1 < 4 < max(labels) <= 5
        else:
            assert all(labels.count(label) > len(rows) / len(about.labels) * 0.7 for label in range(len(about.labels)))


@pytest.mark.slow
def test_the_stand_ins_are_drawn_from_their_seed_alone():
    first, again, other = (load_embedded("cola", seed).splits["validation"] for seed in (0, 0, 1))
    rows, same, others = ([split.sample(Draw(i)) for i in range(50)] for split in (first, again, other))
    assert rows == same
    assert [row["label"] for row in rows] != [row["label"] for row in others]


def test_no_file_gives_sentences_to_two_splits():
    paths = {
        split: {doc.module.path for doc in read_docstrings() if doc.split == split}
        for split in ("train", "validation", "test")
    }
    assert not paths["train"] & (paths["validation"] | paths["test"])
    assert not paths["validation"] & paths["test"]


def test_sentences_are_prose():
    for doc in read_docstrings()[:300]:
        for sentence in doc.sentences:
            assert sentence[0] in string.ascii_uppercase
            assert 5 <= len(sentence.split()) <= 40


def test_the_hub_gives_the_same_columns_and_no_code_is_asked_for(monkeypatch):
    asked = []

    def load_dataset(*arguments):
        asked.append(arguments)
        row = {"premise": "It rains.", "hypothesis": "It is wet.", "label": 0}
        return {"train": [row], "validation_matched": [row], "validation_mismatched": [row], "test_matched": [row]}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found = catalog.load("glue-mnli", hub=True)
    assert asked == [("nyu-mll/glue", "mnli")]
    assert sorted(found.splits) == ["mismatched", "train", "validation"]
    assert found.show(found.splits["train"].sample(Draw(0))) == "entailment: It rains. ‖ It is wet."
    with pytest.raises(LrpeError, match=r"digits cannot be read from the hub; these can: .*glue-mnli"):
        catalog.load("digits", hub=True)
