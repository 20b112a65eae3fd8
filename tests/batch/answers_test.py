# SPDX-License-Identifier: Apache-2.0
"""Answers for many files: their order, rows, copies, and errors."""

import concurrent.futures
import csv
import json
import os
import pathlib

import pytest
from pyarrow import parquet

from cac_tf import batch
from cac_tf.batch.answers import COLUMNS
from cac_tf.batch.answers import FORMATS
from cac_tf.batch.answers import Counts
from cac_tf.batch.answers import copy_by_answer
from cac_tf.batch.answers import counts_in
from cac_tf.batch.classifier import Answer

KNOWN = Answer("cat", 0, False, 0.25, 0.75, 1.5, "cat", "", [0.9, 0.1])
UNKNOWN = Answer("unknown", -1, True, 2.5, 0.01, 1.5, "dog", "", [0.2, 0.8])


class Recorder:
    """Stands for a `Classifier`; answers with the contents."""

    def __init__(self):
        self.sizes = []

    def classify(self, files, threshold=None):
        self.sizes.append(len(files))
        return [KNOWN._replace(label=file.decode()) for file in files]


def test_answers_come_in_the_order_of_the_paths(tmp_path):
    paths = [str(tmp_path / f"{i}.png") for i in range(70)]
    for i, path in enumerate(paths):
        if i % 7:
            with open(path, "w") as file:
                file.write(f"file {i}")
    classifier = Recorder()
    (block,) = batch.blocks_of(paths)
    found = list(batch.answers_of(classifier, block))
    assert [path for path, _ in found] == paths
    for i, (_, answer) in enumerate(found):
        if i % 7:
            assert answer.label == f"file {i}" and not answer.error
        else:
            assert answer == Answer(error="No such file or directory")
    # Never more than a batch is in memory.
    assert max(classifier.sizes) <= 32 and len(classifier.sizes) == 3


def test_a_path_with_a_zero(tmp_path):
    """As from `find -print0`: an error of its own, in its place."""
    (tmp_path / "a.png").write_text("one")
    good = str(tmp_path / "a.png")
    (block,) = batch.blocks_of([good, "b.png\0c.png", good])
    found = list(batch.answers_of(Recorder(), block))
    assert [key for key, _ in found] == [good, "b.png\0c.png", good]
    assert [one.error for _, one in found] == ["", "embedded null byte", ""]


def test_a_folder_is_no_file(tmp_path):
    (block,) = batch.blocks_of([str(tmp_path)])
    ((_, answer),) = batch.answers_of(Recorder(), block)
    assert answer.error == "Is a directory"


def test_paths(tmp_path):
    for name in ("b.png", "a.png", "deep/c.jpg", ".hidden.png", "deep/.x/y"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    folder = str(tmp_path)
    names = ["a.png", "b.png", "deep/c.jpg"]
    assert list(batch.paths_of([folder])) == [f"{folder}/{n}" for n in names]
    pattern = f"{folder}/*.png"
    assert list(batch.paths_of([pattern, "x"], [])) == [
        f"{folder}/a.png",
        f"{folder}/b.png",
        "x",
    ]
    assert list(batch.paths_of([f"{folder}/**/*.jpg"])) == [
        f"{folder}/deep/c.jpg"
    ]
    assert list(batch.paths_of(["-", "z"], ["p q\n", "\n", "r"])) == [
        "p q",
        "r",
        "z",
    ]
    # A name that looks like a pattern, and is a file.
    (tmp_path / "[1].png").touch()
    assert list(batch.paths_of([f"{folder}/[1].png"])) == [f"{folder}/[1].png"]
    with pytest.raises(ValueError, match="No file matches the pattern"):
        list(batch.paths_of([f"{folder}/*.gif"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="contains no files"):
        list(batch.paths_of([f"{folder}/empty"]))


KEY = 'a "b", c\nd\udcff.png'
ROWS = [
    (KEY, KNOWN),
    ("two", UNKNOWN),
    ("three", Answer(error="no image")),
]


def written(path):
    with batch.rows_file(str(path)) as write:
        for key, answer in ROWS:
            write(key, answer)


def test_rows_as_csv(tmp_path):
    written(tmp_path / "x.csv")
    with open(
        tmp_path / "x.csv",
        newline="",
        encoding="utf-8",
        errors="surrogateescape",
    ) as file:
        one, two, three = csv.DictReader(file)
    assert tuple(one) == COLUMNS
    assert one["key"] == KEY
    assert (one["label"], one["class_id"]) == ("cat", "0")
    assert (one["is_unknown"], two["is_unknown"]) == ("False", "True")
    assert float(two["unknown_score"]) == 2.5
    assert float(two["p_value"]) == 0.01
    assert two["predicted_class"] == "dog"
    assert three["error"] == "no image" and three["class_id"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "'a'", "\t=1", "a"])
def test_no_text_in_csv_is_a_formula(tmp_path, text):
    """By a rule that can be undone; numbers are what they are."""
    path = tmp_path / "x.csv"
    answer = KNOWN._replace(label=text, predicted_class=text, class_id=-1)
    with batch.rows_file(str(path)) as write:
        write(text, answer)
    with open(path, newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["class_id"] == "-1"
    for name in ("key", "label", "predicted_class"):
        assert row[name][0] not in "=+-@\t"
        assert row[name].removeprefix("'") == text


def test_rows_as_json(tmp_path):
    written(tmp_path / "x.jsonl")
    text = (tmp_path / "x.jsonl").read_text("utf-8")
    one, two, three = map(json.loads, text.splitlines())
    assert tuple(one) == COLUMNS
    assert one["key"] == KEY and one["is_unknown"] is False
    assert two["class_id"] == -1 and two["threshold"] == 1.5
    assert three["error"] == "no image" and three["class_id"] is None


def test_rows_as_parquet(tmp_path, monkeypatch):
    """In groups of rows; bytes that are no UTF-8 become escapes."""
    monkeypatch.setattr("cac_tf.batch.answers._ROW_GROUP", 2)
    written(tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert tuple(table.column_names) == COLUMNS
    one, two, three = table.to_pylist()
    assert one["key"] == 'a "b", c\nd\\udcff.png'
    assert one["class_id"] == 0 and one["is_unknown"] is False
    assert (two["unknown_score"], two["p_value"]) == (2.5, 0.01)
    assert two["predicted_class"] == "dog"
    assert three["error"] == "no image" and three["class_id"] is None
    # Also without a row.
    with batch.rows_file(str(tmp_path / "none.parquet")):
        pass
    # Errors may name files whose names are no text.
    with batch.rows_file(str(tmp_path / "error.parquet")) as write:
        write(KEY, Answer(error=f"No such file: {KEY}"))
    (error,) = parquet.read_table(tmp_path / "error.parquet")["error"]
    assert error.as_py().endswith("d\\udcff.png")
    none = parquet.read_table(tmp_path / "none.parquet")
    assert none.schema == table.schema and len(none) == 0


@pytest.mark.parametrize("ending", FORMATS)
def test_counts_are_read_again(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    written(path)
    assert counts_in(str(path)) == Counts(1, 1, 1)


def test_a_file_of_rows_is_whole_or_not_there(tmp_path):
    path = tmp_path / "x.csv"
    with pytest.raises(KeyboardInterrupt), batch.rows_file(str(path)) as write:
        write("a", KNOWN)
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    # What a killed attempt left is used again.
    (tmp_path / ".x.csv").write_text("half of a line, and more\n" * 9)
    written(path)
    assert os.listdir(tmp_path) == ["x.csv"]
    assert "half" not in path.read_text("utf-8", "surrogateescape")
    with (
        pytest.raises(ValueError, match=r"must end in \.csv, \.jsonl or \.par"),
        batch.rows_file(str(tmp_path / "x.txt")),
    ):
        pass


def test_copies(tmp_path):
    source = tmp_path / "photo.png"
    source.write_text("one")
    target = tmp_path / "sorted"
    copy = copy_by_answer(str(source), KNOWN, str(target))
    assert copy == str(target / "cat" / "photo.png")
    # The same file again, and another of this name.
    assert copy_by_answer(str(source), KNOWN, str(target)) == copy
    source.write_text("two")
    second = copy_by_answer(str(source), KNOWN, str(target))
    # The first digits of the SHA-256 of "two".
    assert second == str(target / "cat" / "photo_3fc4ccfe745870e2.png")
    assert copy_by_answer(str(source), KNOWN, str(target)) == second
    assert len(os.listdir(target / "cat")) == 2
    assert (target / "cat" / "photo.png").read_text() == "one"
    for label, folder in (
        ("../../etc", "_.._etc_74ccf3c5"),
        ("..", "_5ec1f7e7"),
        ("a/b", "a_b_c14cddc0"),
        ("a:b", "a_b_6783a31e"),
        ("zwei ©", "zwei __33a44f15"),
        ("unknown.", "unknown_4dd633b1"),
        ("写" * 90, "写" * 80 + "_618f90ba"),
        (long_name := "00000_Animalia_Annelida_Clitellata" * 5, long_name),
    ):
        answer = KNOWN._replace(label=label)
        copy = copy_by_answer(str(source), answer, str(target))
        assert copy == str(target / folder / "photo.png")
    bad = Answer(error="no image")
    assert copy_by_answer(str(source), bad, str(target)) is None


def test_two_files_of_a_long_name(tmp_path):
    name = "写" * 80 + ".png"
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(folder)
    copies = {
        copy_by_answer(
            str(tmp_path / folder / name), KNOWN, str(tmp_path / "sorted")
        )
        for folder in "abab"
    }
    texts = [pathlib.Path(copy).read_text() for copy in sorted(copies)]
    assert sorted(texts) == ["a", "b"]
    assert str(tmp_path / "sorted" / "cat" / name) in copies


def test_a_copy_that_was_killed_is_made_again(tmp_path, monkeypatch):
    source, target = tmp_path / "photo.png", tmp_path / "sorted"
    source.write_text("a whole photo")

    def killed(path, to):
        with open(to, "w") as file:
            file.write("half")
        os._exit(9)

    if not (child := os.fork()):
        monkeypatch.setattr("shutil.copyfile", killed)
        copy_by_answer(str(source), KNOWN, str(target))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    copy_by_answer(str(source), KNOWN, str(target))
    assert os.listdir(target / "cat") == ["photo.png"]
    assert (target / "cat" / "photo.png").read_text() == "a whole photo"


def test_photos_of_one_name_at_the_same_time(tmp_path):
    """From folders of cameras, for example; none replaces another one."""
    sources = []
    for i in range(24):
        sources.append(tmp_path / str(i) / "image.jpg")
        sources[-1].parent.mkdir()
        sources[-1].write_text(f"photo {i}")
    target = tmp_path / "sorted"

    def copy(path):
        return copy_by_answer(str(path), KNOWN, str(target))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        copies = list(pool.map(copy, sources))
    found = [pathlib.Path(path).read_text() for path in copies]
    assert found == [f"photo {i}" for i in range(24)]
    assert sorted(os.listdir(target / "cat")) == sorted(
        map(os.path.basename, copies)
    )
    assert f"{target}/cat/image.jpg" in copies


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError("no hard links")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "a.png").write_text("one")
    copies = {
        copy_by_answer(str(tmp_path / "a.png"), KNOWN, str(tmp_path))
        for _ in range(2)
    }
    (copy,) = copies
    assert pathlib.Path(copy).read_text() == "one"
    assert os.listdir(tmp_path / "cat") == [os.path.basename(copy)]


def test_counts():
    counts = Counts()
    for _, answer in [*ROWS, ("four", KNOWN)]:
        counts = counts.and_one(answer)
    assert counts == Counts(accepted=2, rejected=1, failed=1)
    assert counts.and_those(Counts(1, 0, 5)) == Counts(3, 1, 6)
