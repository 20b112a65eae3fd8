# SPDX-License-Identifier: Apache-2.0
"""An input gets one decision: alone, in any batch, in memory, in an export.

Rounding differs between all of these, so a threshold must not lie on a score.
"""

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import decision
from tests.export import runtimes

TINY = np.finfo("float32").tiny
BATCHES = (1, 7, 1000)


class FirstLogit(cac_tf.scores.Score):
    """No arithmetic, which might take small numbers for zero."""

    NAME, READS = "first_logit", ("logits",)

    def call(self, logits):
        return logits[:, 0]


def denormal_scores():
    """A model, and scores that some runtimes take for zero."""
    classifier = keras.Sequential([keras.Input([3]), keras.layers.Identity()])
    model = cac_tf.OpenSetClassifier(classifier, list("abc"), FirstLogit())
    scores = [-1.0, -2e-38, -1e-40, 0.0, 1e-42, 1e-40, 5e-39, 2e-38, 1e-30, 1.0]
    # Each once for each predicted class.
    others = np.float32([[-5, -5], [5, -5], [-5, 5]])
    rows = [[score, *other] for score in scores for other in others]
    return model, np.float32(rows)


def vanishing_scores():
    """A model whose scores, between two anchors, are almost 0 and more.

    gamma = d (1 - softmin(d)) is about d exp(-gap) near an anchor, which some
    runtimes take for 0.
    """
    dense = keras.layers.Dense(3, use_bias=False)
    classifier = keras.Sequential([keras.Input([3]), dense])
    dense.set_weights([np.eye(3)])
    model = cac_tf.OpenSetClassifier(classifier, list("abc"), centers=100.0)
    share = np.linspace(0.1, 0.3, 60)[:, None]
    anchors = 100.0 * np.eye(3)
    start = np.arange(60) % 3
    x = (1 - share) * anchors[start] + share * anchors[start - 1]
    return model, np.float32(x)


MADE = {"denormal": denormal_scores, "vanishing": vanishing_scores}


@pytest.fixture(params=[*MADE, "gamma", "min_distance", "energy"])
def calibrated(request, trained_pictures):
    """A model, and the examples that it is calibrated with."""
    if request.param in MADE:
        return MADE[request.param]()
    model, pictures = trained_pictures
    return model.with_score(request.param), pictures


def thresholds_of(scores):
    """All that a calibration with these scores can give."""
    count = len(scores) + 1
    return np.unique(
        [
            rule(scores, rank / count)
            for rule in (
                decision.threshold_for_true_positive_rate,
                decision.threshold_for_false_positive_rate,
            )
            for rank in range(1, count)
        ]
    )


def in_batches(ask, size, rows, **others):
    """The class ids that an export gives to rows, in batches of this size."""
    parts = [slice(i, i + size) for i in range(0, len(rows), size)]
    return np.concatenate(
        [
            ask(rows[part], **{k: v[part] for k, v in others.items()})[
                "class_id"
            ]
            for part in parts
        ]
    )


def test_every_example_with_every_threshold(calibrated, tmp_path):
    """Also the two examples that a threshold lies between."""
    model, x = calibrated
    # Where no calibration is, any number will do for the export.
    model.set_threshold(1.0)
    ask = runtimes.asking(model, tmp_path / "saved", "with_threshold")
    in_memory = [model.predict_scores(x, batch_size=size) for size in BATCHES]
    scores = in_memory[-1].unknown_score
    thresholds = thresholds_of(scores)
    # (There is none between numbers that some processors take for 0.)
    assert len(thresholds) > len(np.unique(np.round(scores, 36))) - 5
    images, allowed = np.float32(x), 0
    for threshold in thresholds:
        expected = model.decide(in_memory[-1], threshold).class_id
        for batched in in_memory:
            found = model.decide(batched, threshold)
            np.testing.assert_array_equal(found.class_id, expected)
        if model.score.IS_NON_NEGATIVE and threshold < 0:
            assert (expected == -1).all()
            continue
        allowed += 1
        column = np.full(len(x), threshold, "float32")
        for size in BATCHES:
            np.testing.assert_array_equal(
                in_batches(ask, size, images, threshold=column), expected
            )
    assert allowed >= len(thresholds) - 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.LOAD)
@pytest.mark.parametrize("by_class", [False, True])
def test_the_threshold_of_an_export(calibrated, tmp_path, suffix, by_class):
    model, x = calibrated
    threshold = model.calibrate(x, true_positive_rate=0.4, by_class=by_class)
    expected = model.predict_open_set(x).class_id
    assert 0 < (expected == -1).sum() < len(x)
    assert np.abs(threshold).min() >= TINY
    ask = runtimes.exported(model, tmp_path / f"model{suffix}")
    for size in BATCHES:
        np.testing.assert_array_equal(
            model.predict_open_set(x, batch_size=size).class_id, expected
        )
        np.testing.assert_array_equal(
            in_batches(ask, size, np.float32(x)), expected
        )


def test_there_are_scores_that_some_runtimes_take_for_zero():
    model, x = denormal_scores()
    scores = model.predict_scores(x).unknown_score
    np.testing.assert_array_equal(scores, x[:, 0])
    assert np.any((scores != 0) & (np.abs(scores) < TINY))
    assert not np.any(np.abs(thresholds_of(scores)) < TINY)
    model, x = vanishing_scores()
    scores = model.predict_scores(x).unknown_score
    assert 0 < scores.min() < 1e-36 and (scores > 1e-30).any()
