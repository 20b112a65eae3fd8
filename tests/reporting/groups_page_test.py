# SPDX-License-Identifier: Apache-2.0
"""What was found of rejected inputs, in a sentence."""

import numpy as np
import pytest

from cac_tf.open_world.grouping import Group
from cac_tf.open_world.grouping import Grouping
from cac_tf.reporting.groups_page import summary_of
from cac_tf.reporting.groups_page import write_groups_page


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ([], "No input was rejected, so there are no groups."),
        (
            [-1],
            "1 input was rejected; no groups of similar inputs were found.",
        ),
        (
            [-1] * 2000,
            "2,000 inputs were rejected; no groups of similar inputs were "
            "found.",
        ),
        (
            [0, 0],
            "2 inputs were rejected: 2 in 1 group of similar inputs.",
        ),
        (
            [0, 0, 1, 1, -1],
            "5 inputs were rejected: 4 in 2 groups of similar inputs; 1 in no "
            "group.",
        ),
    ],
)
def test_a_summary_is_a_sentence(group, sentence):
    group = np.array(group, "int32")
    groups = [
        Group(np.flatnonzero(group == k), 1.0, None, None)
        for k in range(group.max(initial=-1) + 1)
    ]
    found = Grouping(group, np.ones(len(group)), tuple(groups))
    assert summary_of(found) == sentence


def test_groups_without_predicted_classes_are_shown(tmp_path):
    group = Group(np.arange(2), 0.75, None, None)
    found = Grouping(np.zeros(2, "int32"), np.ones(2, "float32"), (group,))
    write_groups_page(tmp_path / "groups.html", found, ["one", "two"], {})
    page = (tmp_path / "groups.html").read_text("utf-8")
    assert "2 inputs, tightness 0.75." in page
    assert "<td>–</td>" in page
