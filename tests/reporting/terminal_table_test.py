# SPDX-License-Identifier: Apache-2.0
"""Tables on terminals of any width."""

import io

import pytest

from cac_tf.reporting.terminal_table import print_table

NAMES = ["cross_entropy, class_z_score, trial 0", "cac, gamma", "x" * 30]
NUMBERS = ["AUROC", "CCR@10%", "mean over trials", "us/image", "OSCR"]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_every_number_is_whole_and_every_name_complete(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ([name, *(f"{k}.{i}234 ± 0.0{k}" for k in range(5))], i == 2)
        for i, name in enumerate(NAMES)
    ]
    stream = io.StringIO()
    print_table(
        ["score"], NUMBERS, rows, title="Title", caption="End", file=stream
    )
    lines = stream.getvalue().splitlines()
    text = stream.getvalue()
    if width >= 40:
        assert max(map(len, lines)) <= width
    assert "…" not in text
    for i in range(3):
        for k in range(5):
            assert f"{k}.{i}234 ± 0.0{k}" in text
    assert text.count("Title") == text.count("End") == 1
    # A name's pieces follow each other in the first column.
    pieces = "".join(line[:15].strip() for line in lines)
    for word in NAMES[0].split():
        assert word in text or word[:10] in pieces


def test_names_do_not_move_the_cursor(capsys):
    hostile = "a\x1b[2J\u202eb"
    print_table(["score"], [hostile], [([hostile, "1"], False)])
    assert capsys.readouterr().out.count(r"a\x1b[2J\u202eb") == 2


def test_names_are_no_markup(capsys):
    print_table(["a [old]"], ["[/x]"], [(["[red]b :smile:", "1"], False)])
    shown = capsys.readouterr().out
    assert "a [old]" in shown
    assert "[/x]" in shown
    assert "[red]b :smile:" in shown


def test_nothing_to_show(capsys):
    print_table(["score"], ["AUROC"], [])
    assert "AUROC" in capsys.readouterr().out
