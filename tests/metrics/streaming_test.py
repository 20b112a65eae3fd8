# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf import metrics
from tests import oracle
from tests.conftest import blobs
from tests.conftest import small_classifier


@pytest.fixture
def batches(rng):
    """Batches of labels (-1: unknown), distances and weights."""
    result = []
    for rows in (32, 32, 7):
        labels = rng.integers(-1, 4, rows)
        distances = np.float32(14 * rng.random((rows, 4)))
        known = labels >= 0
        distances[known, labels[known]] *= 0.5
        result.append((labels, distances, np.float32(rng.random(rows))))
    return result


def streamed(metric, batches, weighted=False):
    for labels, distances, weights in batches:
        metric.update_state(labels, distances, weights if weighted else None)
    return float(metric.result())


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_known_inputs(batches, weighted):
    labels, distances, weights = map(np.concatenate, zip(*batches, strict=True))
    known = labels >= 0
    y, d = labels[known], np.float64(distances[known])
    w = weights[known] if weighted else np.ones(known.sum())
    for metric, values in (
        (metrics.NearestCentreAccuracy(), d.argmin(axis=1) == y),
        (metrics.AnchorLoss(), oracle.anchor_loss(y, d)),
        (metrics.TupletLoss(), oracle.tuplet_loss(y, d)),
    ):
        actual = streamed(metric, batches, weighted)
        assert actual == pytest.approx(np.average(values, weights=w), rel=1e-5)


def test_auroc_is_close_to_the_exact_one(rng):
    labels = rng.integers(-1, 2, 3000)
    distances = np.float32(rng.uniform(5, 14, (3000, 2)))
    known = labels >= 0
    # Gamma then spans many orders of magnitude.
    distances[known, labels[known]] = np.float32(
        rng.gamma(1.0, 3.0, known.sum())
    )
    score = oracle.gamma(np.float64(distances)).min(axis=1)
    exact = metrics.auroc(score[known], score[~known])
    assert 0.6 < exact < 0.99
    batches = [(labels[i::9], distances[i::9], None) for i in range(9)]
    actual = streamed(metrics.OpenSetAUROC(), batches)
    assert actual == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.NearestCentreAccuracy,
        metrics.AnchorLoss,
        metrics.TupletLoss,
        metrics.OpenSetAUROC,
    ],
)
def test_survives_serialization(metric, batches):
    original = metric(name="mine")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(original)
    )
    assert copy.name == "mine"
    assert streamed(copy, batches) == streamed(original, batches)


def test_unknown_validation_data_weigh_nothing_but_in_the_auroc(rng):
    """In `fit`: loss and accuracy are those of the known inputs alone."""
    x, y = blobs(rng)
    far = np.float32(rng.normal(-2, 1, (100, 5)))
    mixed_x = np.concatenate([far[:50], x, far[50:]])
    mixed_y = np.concatenate([np.full(50, -1), y, np.full(50, -1)])
    model = small_classifier()
    model.compile(
        optimizer="sgd",
        loss=model.loss,
        metrics=["accuracy", metrics.AnchorLoss(), metrics.OpenSetAUROC()],
    )
    history = model.fit(
        x, y, epochs=8, verbose=0, validation_data=(mixed_x, mixed_y)
    ).history
    mixed = model.evaluate(mixed_x, mixed_y, verbose=0, return_dict=True)
    known = model.evaluate(x, y, verbose=0, return_dict=True)
    for name in ("loss", "accuracy", "anchor_loss"):
        assert mixed[name] == pytest.approx(known[name], rel=1e-5)
        assert history[f"val_{name}"][-1] == pytest.approx(mixed[name])
    distances = np.float64(model.predict(mixed_x, verbose=0))
    score = oracle.gamma(distances).min(axis=1)
    exact = metrics.auroc(score[mixed_y >= 0], score[mixed_y < 0])
    assert mixed["auroc"] == pytest.approx(exact, abs=5e-3)
