# SPDX-License-Identifier: Apache-2.0
"""What a report and a model card say in words."""

import copy

import numpy as np
import pytest
from scipy import stats

from cac_tf.reporting import verdict
from cac_tf.reporting.model_card import model_card
from cac_tf.reporting.verdict import share

MEASURES = {
    "dataset": "pets",
    "class_names": ["cat", "d_o*g"],
    "score": "gamma",
    "accuracy": 0.9,
    "oscr": 0.8,
    "auroc": 0.91,
    "fpr_at_95_tpr": 0.3,
    "threshold": 1.5,
    "true_positive_rate": 0.95,
    "false_positive_rate": 0.25,
    "counts": {"known_test": 200, "unknown_test": 400},
    "intervals": {"auroc": [0.88, 0.94]},
    "scores": {"gamma": {"auroc": 0.91}, "knn": {"auroc": 0.94}},
}
CONFIG = {
    "settings": {
        "data": {"dataset": "folder", "data_dir": "/photos"},
        "method": "cac",
        "recipe": {"epochs": 3},
        "seed": 7,
    },
    "data": {
        "class_names": ["cat", "d_o*g"],
        "unknown_class_names": ["cow"],
        "counts": {"train": 1000, "known_test": 200},
    },
    "environment": {
        "versions": {"keras": "3.15"},
        "commit": "0123abc",
        "hardware": {"cpu": "a processor"},
        "date": "2026-01-01",
    },
}


@pytest.mark.parametrize(
    ("right", "count"), [(0, 50), (50, 50), (190, 200), (12345, 20000)]
)
def test_intervals_are_those_of_wilson(right, count):
    z = 1.959963984540054
    p = right / count
    center = (p + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count)
    half *= np.sqrt(p * (1 - p) / count + z**2 / (4 * count**2))
    digits = 1 if count >= 1000 else 0
    low, high = 100 * (center - half), 100 * (center + half)
    expected = (
        f"{100 * p:.{digits}f} % "
        f"[{max(low, 0):.{digits}f}-{min(high, 100):.{digits}f}]"
    )
    assert share(p, count) == expected


@pytest.mark.parametrize("other", [0.9, 0.9149])
def test_a_difference_that_does_not_matter_is_not_called_better(other):
    measures = copy.deepcopy(MEASURES)
    measures["scores"]["knn"]["auroc"] = other
    assert verdict(measures)[-1] == (
        "By AUROC on these test images, none of the 2 scores compared "
        "beats gamma (0.910) by 0.005 or more."
    )


def test_a_difference_within_chance_is_called_so():
    measures = {**MEASURES, "auroc_differences": {"knn": [-0.01, 0.07]}}
    assert verdict(measures)[-1] == (
        "By AUROC on these test images, knn is ahead, but possibly by "
        "chance: 0.940 against 0.910 for gamma, a difference of 0.030 "
        "[-0.010 to 0.070]."
    )


def test_without_unknown_classes_or_threshold():
    closed = {
        **MEASURES,
        "auroc": None,
        "threshold": None,
        "scores": {"gamma": {"auroc": None}, "knn": {"auroc": None}},
    }
    assert verdict(closed) == [
        "Its closed-set accuracy is 90 % [85-93].",
        "The test data contain no unknown classes: this is a closed-set "
        "evaluation, which says nothing about rejection.",
    ]
    assert "- Rejection was not measured." in model_card(closed, CONFIG)


def test_what_was_asked_for_and_what_was_reached():
    found = {"asked": 0.9, "accepted": 137, "examples": 151}
    low, high = stats.binomtest(137, 151).proportion_ci(0.9, method="exact")
    reached = (
        "151 validation images and accepts 137 of them (90.7 %); expect it to "
        f"accept {100 * low:.0f}-{100 * high:.0f} % of new known images (with "
        "90 % probability)."
    )
    assert verdict({**MEASURES, "calibration": found})[1] == (
        f"The threshold was set for 90 % on {reached}"
    )
    # An evaluation that did not set it does not know what was asked for.
    del found["asked"]
    assert verdict({**MEASURES, "calibration": found})[1] == (
        f"The threshold was set on {reached}"
    )
    counts = {**MEASURES["counts"], "validation": 0}
    texts = {"counts": counts, "inputs": "texts", "calibration": found}
    assert (
        "on 151 training texts, each scored by a model trained without it,"
        in (verdict({**MEASURES, **texts})[1])
    )


def test_threshold_by_class():
    measures = {**MEASURES, "threshold": [2.0, 0.5]}
    assert "(gamma, thresholds from 0.5 to 2 by class)" in verdict(measures)[0]


def test_a_model_card_shows_names_as_they_are():
    data = {**CONFIG["data"], "class_names": ["<b>*", "a_b", "[x](y)"]}
    card = model_card(MEASURES, {**CONFIG, "data": data})
    assert r"Known classes: \<b\>\*, a_b, \[x\](y)" in card


def test_a_model_card_says_what_is_needed():
    card = model_card(MEASURES, CONFIG)
    for part in (
        "# Open-set classifier: pets\n",
        "- Accepts 95 % [91-97] of 200 known test images and 25 % [21-29]",
        "| AUROC | 0.910 | 0.880 to 0.940 |",
        "| OSCR | 0.800 | - |",
        r"- Known classes: cat, d_o\*g",
        "- Unknown classes in the test data: cow",
        "- Images: 1,000 train, 200 known test",
        "- Source: dataset folder, data_dir /photos",
        "- epochs: 3",
        "- seed: 7",
        "- commit of cac_tf: 0123abc",
        "- on a processor, 2026-01-01",
        "Apache License 2.0",
        'cac_tf.load_model("model.keras")',
    ):
        assert part in card, part
