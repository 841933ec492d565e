import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.reading import read_lines
from lrpe.lab.data.text.sources import folder_source, join_sources, read_documents


def write(folder, **files):
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def listed(source):
    return [tuple(document) for document in source.documents()]


def test_files_named_by_split_are_split_as_they_say(tmp_path):
    source = folder_source(write(tmp_path, train_txt="a", valid_txt="b", test_txt="c", readme_txt="d", wiki_pdf="x"))
    assert sorted(listed(source)) == [("test", "c"), ("train", "a"), ("validation", "b")]


def test_folders_named_by_split_are_split_as_they_say(tmp_path):
    source = folder_source(write(tmp_path, train__1_txt="a", train__2_txt="b", dev__1_txt="c", test__1_txt="d"))
    assert sorted(listed(source)) == [("test", "d"), ("train", "a"), ("train", "b"), ("validation", "c")]


def test_whole_books_are_held_out_by_a_hash_of_their_path(tmp_path):
    folder = write(tmp_path, **{f"{number}_txt": str(number) for number in range(40)})
    documents = listed(folder_source(folder))
    assert documents == listed(folder_source(folder))
    splits = [split for split, _ in documents]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [36, 2, 2]
    assert sorted(text for _, text in documents) == sorted(map(str, range(40)))


def test_three_files_have_a_file_in_each_split(tmp_path):
    source = folder_source(write(tmp_path, a_txt="a", b_txt="b", c_txt="c"))
    assert {split for split, _ in listed(source)} == {"train", "validation", "test"}


@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")), max_size=60))
def test_one_file_is_cut_at_line_ends_and_nothing_is_lost(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("one") / "all.txt"
    text = "".join(line + "\n" for line in lines)
    file.write_bytes(text.encode())
    documents = listed(folder_source(file))
    assert [split for split, _ in documents] == ["train", "validation", "test"]
    assert "".join(part for _, part in documents) == text
    assert all(part.endswith("\n") or not part for _, part in documents)


def test_one_file_of_json_lines_is_held_out_by_number(tmp_path):
    file = tmp_path / "all.jsonl.gz"
    file.write_bytes(gzip.compress("".join(json.dumps({"text": str(n)}) + "\n" for n in range(8)).encode()))
    splits = [split for split, _ in listed(folder_source(file, every=4))]
    assert splits == ["train", "train", "validation", "test"] * 2


def test_the_identity_of_a_source_follows_names_contents_and_shares(tmp_path):
    folder = write(tmp_path, a_txt="a", b_txt="b", c_txt="c")
    before = folder_source(folder).identity
    assert folder_source(folder).identity == before
    assert folder_source(folder, every=10).identity != before
    (folder / "a.txt").rename(folder / "a2.txt")
    renamed = folder_source(folder).identity
    (folder / "a2.txt").write_text("b")
    assert len({str(i) for i in (before, renamed, folder_source(folder).identity)}) == 3


def test_joined_sources_come_one_after_the_other(tmp_path):
    a = folder_source(write(tmp_path / "a", x_txt="1\n" * 40))
    b = folder_source(write(tmp_path / "b", x_txt="2\n" * 40))
    assert listed(join_sources("both", [a, b])) == listed(a) + listed(b)
    assert join_sources("both", [a, b]).identity != join_sources("both", [b, a]).identity


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_file_and_line(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("any") / "any.txt"
    file.write_bytes(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        with pytest.raises(LrpeError, match=rf"line {line} of .*any\.txt"):
            list(read_documents(file))
    else:
        assert list(read_documents(file)) == [text]


@given(data=st.binary(max_size=200), cut=st.integers(0, 60))
def test_a_gzip_that_is_cut_or_none_at_all_is_refused(tmp_path_factory, data, cut):
    file = tmp_path_factory.mktemp("any") / "any.txt.gz"
    whole = gzip.compress(b"some text\n" * 20)
    file.write_bytes(whole[: min(cut, len(whole) - 1)] if cut else b"\x00" + data)
    if file.stat().st_size:  # gzip takes an empty file for an empty text
        with pytest.raises(LrpeError, match="cannot be read to its end"):
            list(read_lines(file))


@given(line=st.one_of(st.text(max_size=30), st.recursive(st.none() | st.text(), st.lists).map(json.dumps)))
def test_a_line_that_is_no_record_is_refused_with_its_number(tmp_path_factory, line):
    file = tmp_path_factory.mktemp("any") / "any.jsonl"
    line = line.encode(errors="replace").decode().replace("\n", " ")
    file.write_text('{"text": "fine"}\n\n' + line + "\n", newline="\n")
    if line.strip():
        with pytest.raises(LrpeError, match=r"any\.jsonl.*line 3"):
            list(read_documents(file))
    else:
        assert list(read_documents(file)) == ["fine", "", ""]


@pytest.mark.parametrize("record", ['{"text": 3}', '{"title": "x"}', '["text"]', "[" * 100_000])
def test_a_record_without_a_text_is_refused(tmp_path, record):
    (tmp_path / "x.jsonl").write_text(record)
    with pytest.raises(LrpeError, match="line 1"):
        list(read_documents(tmp_path / "x.jsonl"))


def test_half_a_surrogate_pair_is_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "\\ud800"}')
    with pytest.raises(LrpeError, match=r"Line 1 .* surrogate"):
        list(read_documents(tmp_path / "x.jsonl"))


def test_a_place_without_text_is_named(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / ".hidden.txt").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "picture.png"):
        with pytest.raises(LrpeError, match=r"files end in \.txt, \.tokens"):
            folder_source(path)
    with pytest.raises(LrpeError, match="is a folder"):
        list(read_lines(tmp_path / "folder.txt"))
    with pytest.raises(LrpeError, match=r"every must be at least 3.*got every=2"):
        folder_source(tmp_path, every=2)
