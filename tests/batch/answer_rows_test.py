# SPDX-License-Identifier: Apache-2.0
"""Answers that were written are read again, from wherever one was before."""

import json

import pytest

from cac_tf.batch.answer_rows import Position
from cac_tf.batch.answer_rows import read_answers
from cac_tf.batch.answers import open_rows
from cac_tf.batch.classifier import Answer

NAMES = ("=cat", "dog")


def answers():
    """Keys and answers, of which some are hard to read."""
    labels = (*NAMES, "unknown")
    return [
        *(
            (key, Answer(labels[i], i, i < 0, 0.25, p, 0.5, labels[i]))
            for key, i, p in (
                ("a.png", 0, 0.125),
                ('two\nlines, and "quotes"', 1, 1.0),
                ("b.png", -1, 0.0625),
            )
        ),
        ("bad.png", Answer(error="no image")),
        ("c.png", Answer("dog", 1, False, 0.25, 0.5, 0.5, "dog")),
    ]


@pytest.fixture(params=["csv", "jsonl"])
def content(request, tmp_path):
    path = str(tmp_path / f"answers.{request.param}")
    with open_rows(path) as write:
        for key, answer in answers():
            write(key, answer)
    with open(path, "rb") as file:
        return file.read()


def read(pieces, after=None):
    found = [*read_answers(pieces, "a.csv", NAMES, after or Position())]
    rows = [
        pair
        for one in found
        for pair in zip(one.class_id, one.p_value, strict=True)
    ]
    failed = sum(one.failed for one in found)
    return rows, failed, found[-1].position if found else after


EXPECTED = [(0, 0.125), (1, 1.0), (-1, 0.0625), (1, 0.5)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_is_written_is_read(content, size):
    pieces = [content[i : i + size] for i in range(0, len(content), size)]
    rows, failed, position = read(pieces)
    assert (rows, failed) == (EXPECTED, 1)
    # From any place on, nothing is read twice and nothing left out.
    steps = [*read_answers(pieces, "a.csv", NAMES)]
    done = 0
    for step in steps:
        done += len(step.class_id)
        assert read(pieces, step.position)[0] == EXPECTED[done:]
    assert steps[-1].position == position


def test_a_line_that_is_being_written_is_left_for_later(content):
    for cut in range(1, len(content)):
        rows, failed, position = read([content[:cut]])
        more, failed_later, _ = read([content], position)
        assert rows + more == EXPECTED
        assert failed + failed_later == 1


def test_files_behind_each_other(content):
    """As `cat part-*.csv` gives them; with a mark, and with empty lines."""
    rows, failed, _ = read([b"\xef\xbb\xbf" + content, b"\r\n" + content])
    assert (rows, failed) == (EXPECTED * 2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key,label\n", "a.csv has no column class_id and no p_value: it must"),
        ("class_id,p_value\n0\n", "record 2: found 1 fields, but the header"),
        ("class_id,p_value\n0,\n", "record 2: class_id must be an integer"),
        ("class_id,p_value\n0.5,1\n", "class_id must be an integer"),
        ("class_id,p_value\n2,1\n", "the class id is 2, but this model has 2"),
        (
            "class_id,p_value,label\n1,1,lynx\n",
            "the class id 1 is 'lynx', but 'dog' in this model",
        ),
        ('{"class_id": 1}\n', "record 1: class_id must be"),
        ('{"class_id": true, "p_value": 1}\n', "class_id must be"),
        ('{"class_id": 1, "p_value": 1}\n[]\n', "record 2: not a JSON object"),
        (
            'class_id,p_value\n"0\n' + "0\n" * 2**20,
            "is not a CSV or JSONL file",
        ),
        ("x" * 2**21, "is not a CSV or JSONL file"),
        (
            "class_id,p_value\n" + "9" * 200_000 + "\n",
            "is not a valid CSV file",
        ),
    ],
)
def test_what_is_no_file_of_answers(text, message):
    with pytest.raises(ValueError, match=message):
        read([text.encode()])


def test_another_file_of_the_same_name_is_told(content):
    position = read([content])[2]
    changed = content.replace(b"c.png", b"d.png")
    short = content[: content.index(b"bad.png")]
    for other in (changed, short, b""):
        with pytest.raises(
            ValueError, match=r"a\.csv is not the file whose first"
        ):
            read([other], position)
    assert json.loads(json.dumps(position)) == list(position)
