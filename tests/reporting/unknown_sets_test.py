# SPDX-License-Identifier: Apache-2.0
"""The report's table of several sets of unknown images."""

import re

from cac_tf.reporting.report import unknown_sets_section


def measured(rate, **aurocs):
    scores = {name: {"auroc": value} for name, value in aurocs.items()}
    return {"false_positive_rate": rate, "scores": scores}


def test_a_column_for_each_set():
    measures = {
        **measured(0.25, gamma=0.9, vim=0.8),
        "auroc": 0.9,
        "unknown_data": {
            "tfds:mnist": measured(0.5, gamma=0.7, vim=0.95),
            "<b>": measured(None, gamma=0.6, vim=0.5),
        },
    }
    text = unknown_sets_section(measures)
    assert "<b>" not in text
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    ]
    assert rows == [
        ["AUROC", "of the data set", "tfds:mnist", "&lt;b&gt;"],
        ["gamma", "0.9000", "0.7000", "0.6000"],
        ["vim", "0.8000", "0.9500", "0.5000"],
        ["accepted at the threshold", "0.2500", "0.5000", rows[-1][-1]],
    ]


def test_nothing_without_further_sets():
    assert (
        unknown_sets_section({**measured(0.1, gamma=0.9), "auroc": 0.9}) == ""
    )
