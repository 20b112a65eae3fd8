# SPDX-License-Identifier: Apache-2.0
"""The best threshold, beside measures that scikit-learn counts."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from cac_tf import metrics
from cac_tf.decision.calibration import threshold_maximizing

N = 4


@pytest.fixture
def examples(rng):
    """Scores, some of them equal, labels and predicted classes."""
    labels = rng.integers(-1, N, 240)
    predicted = np.where(
        (labels < 0) | (rng.random(240) < 0.2), rng.integers(0, N, 240), labels
    )
    scores = np.round(rng.normal(2.0 * (labels < 0), 1.0), 1)
    return np.float32(scores), labels, predicted


def value(measure, threshold, scores, labels, predicted, weights=None):
    decided = np.where(scores <= threshold, predicted, -1)
    if measure == "macro_f1":
        return sklearn_metrics.f1_score(
            labels,
            decided,
            average="macro",
            sample_weight=weights,
            labels=range(-1, N),
            zero_division=0.0,
        )
    return sklearn_metrics.balanced_accuracy_score(labels < 0, decided < 0)


@pytest.mark.parametrize("measure", ["macro_f1", "balanced_accuracy"])
@pytest.mark.parametrize("share", [None, 0.05, 0.6])
def test_no_other_threshold_is_better(examples, measure, share):
    scores, labels, predicted = examples
    weights = None
    if share is not None:
        is_unknown = labels < 0
        weights = np.where(
            is_unknown,
            share / is_unknown.mean(),
            (1 - share) / (1 - is_unknown.mean()),
        )
    found = threshold_maximizing(
        measure, scores, labels, predicted, N, unknown_share=share
    )
    assert found not in scores
    tried = [*(np.unique(scores) + np.float32(0.05)), scores.min() - 1, found]
    values = [value(measure, t, *examples, weights) for t in tried]
    assert values[-1] == pytest.approx(max(values), rel=1e-12)


def test_where_everything_is_better_rejected_or_accepted(examples):
    scores, labels, predicted = examples
    far = np.float32(np.where(labels < 0, -9.0, scores))
    assert (
        threshold_maximizing("balanced_accuracy", far, labels, predicted, N)
        < -9.0
    )
    near = np.where(labels < 0, 9.0, scores)
    assert (
        threshold_maximizing("balanced_accuracy", near, labels, predicted, N)
        > scores[labels >= 0].max()
    )


def test_a_threshold_that_rejects_everything_is_above_0_if_scores_are():
    """Below 0 there may be no score, and then there is no such threshold."""
    found = threshold_maximizing(
        "balanced_accuracy", [3.0, 4, 5, 4, 0.25, 2], [0, 1, 2, 3, -1, -1],
        [0, 1, 2, 3, 0, 1], N,
    )  # fmt: skip
    assert found == 0.125


def test_no_threshold_parts_scores_that_differ_by_rounding():
    scores = [1.0, 2.0, 2.0000005, 2.000001, 2.0000015, 5.0]
    labels = [0, 0, -1, -1, -1, -1]
    assert (
        threshold_maximizing("balanced_accuracy", scores, labels, [0] * 6, N)
        == 1.5
    )


@pytest.mark.parametrize(
    "change, message",
    [
        ({"measure": "f1"}, "one of macro_f1, balanced_accuracy"),
        ({"unknown_share": 1.0}, r"unknown_share must be in \(0, 1\)"),
        ({"labels": [0, 1]}, "one unknown example"),
        ({"labels": [-1, -1]}, "one known example"),
        ({"scores": [1.0, np.inf]}, "must be finite"),
    ],
)
def test_what_is_refused(change, message):
    arguments = {
        "measure": "macro_f1",
        "scores": [1.0, 2.0],
        "labels": [0, -1],
        "class_ids": [0, 1],
        "num_classes": 2,
    }
    with pytest.raises(ValueError, match=message):
        threshold_maximizing(**{**arguments, **change})


def test_measures_by_class_are_those_of_scikit_learn(examples):
    scores, labels, predicted = examples
    decided = np.where(scores <= 1.0, predicted, -1)
    order = [*range(N), -1]
    report = sklearn_metrics.classification_report(
        labels, decided, labels=order, output_dict=True
    )
    found = metrics.by_class(labels, decided, N)
    for row, name in enumerate(order):
        own = report[str(name)]
        assert found.precision[row] == own["precision"]
        assert found.recall[row] == own["recall"]
        assert found.support[row] == own["support"]
    assert metrics.macro_f1(labels, decided, N) == pytest.approx(
        report["macro avg"]["f1-score"], rel=1e-12
    )
    counts = metrics.confusion_matrix(labels, decided, N)
    assert counts.sum() == len(labels)
    np.testing.assert_array_equal(counts.sum(axis=1), found.support)
    np.testing.assert_allclose(
        np.diag(counts) / counts.sum(axis=1), found.recall
    )
    with pytest.raises(ValueError, match="as many decisions as labels"):
        metrics.macro_f1(labels, decided[1:], N)


def test_a_model_is_calibrated_with_known_and_unknown_inputs(
    trained_blobs, rng
):
    trained, x, y = trained_blobs
    model = trained.with_score("gamma")
    unknown = np.float32(rng.normal(0, 2, (50, 5)))
    found = model.calibrate(x, y, unknown=unknown, maximize="macro_f1")
    best = model.evaluate(
        np.concatenate([x, unknown]), np.append(y, np.full(50, -1))
    )["macro_f1"]
    both = model.predict_scores(np.concatenate([x, unknown]))
    labels = np.append(y, np.full(50, -1))
    for threshold in np.quantile(both.unknown_score, np.linspace(0, 1, 40)):
        decided = model.decide(both, threshold).class_id
        assert metrics.macro_f1(labels, decided, 3) <= best + 1e-12
    # The same rows, labelled -1.
    again = model.calibrate(
        np.concatenate([x, unknown]), labels, maximize="macro_f1"
    )
    assert found == again == model.threshold
    # P-values are those among the known inputs.
    p_value = model.predict_open_set(x).p_value
    assert p_value.min() == pytest.approx(2 / (len(x) + 1))
    rare = model.calibrate(
        x, y, unknown=unknown, maximize="macro_f1", unknown_share=0.01
    )
    assert rare > found


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "exactly one of"),
        ({"maximize": "macro_f1", "true_positive_rate": 0.9}, "exactly one of"),
        (
            {"true_positive_rate": 0.9, "unknown_share": 0.1},
            "only with maximize",
        ),
        ({"maximize": "macro_f1", "by_class": True}, "leave by_class out"),
        ({"maximize": "macro_f1"}, "maximize needs labels"),
    ],
)
def test_what_calibrate_refuses(trained_blobs, arguments, message):
    trained, x, _ = trained_blobs
    with pytest.raises(ValueError, match=message):
        trained.calibrate(x, **arguments)
