# SPDX-License-Identifier: Apache-2.0
"""A score that learns from distances to the class means."""

import keras
import numpy as np
import pytest
from keras import ops

import cac_tf
from cac_tf import scores
from tests import oracle
from tests.conftest import blobs


class UsualDistance(scores.Score):
    """The distance to the nearest center, less the mean of the known ones."""

    NAME, READS = "usual_distance", ("distances",)
    IS_FITTED_TO_DATA = True

    def start(self, context):
        return []

    def update(self, kept, batch):
        kept.extend(batch["distances"].min(axis=1))

    def finish(self, kept, context):
        return {"usual": np.mean(kept)}

    def call(self, distances, *, usual):
        return ops.min(distances, axis=-1) - usual


@pytest.mark.parametrize("centers", [None, "anchors"])
@pytest.mark.parametrize("has_own_data", [False, True])
def test_it_is_fitted_to_the_distances_of_the_model(rng, centers, has_own_data):
    x, y = blobs(rng)
    classifier = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    classifier.set_weights([np.eye(5, 3), np.zeros(3)])
    logits, means = x[:, :3], 10.0 * np.eye(3)
    if centers is None:
        right = logits.argmax(axis=1) == y
        means = [logits[right & (y == k)].mean(axis=0) for k in range(3)]
    part = slice(0, 90) if has_own_data else slice(None)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (x, y),
        score=UsualDistance(),
        centers=centers,
        score_data=(x[part], y[part]) if has_own_data else None,
        validation_data=(x[:100], y[:100]),
    )
    nearest = oracle.distances(logits, np.array(means)).min(axis=1)
    found = model.predict_scores(x)
    np.testing.assert_allclose(
        found.unknown_score, nearest - nearest[part].mean(), atol=1e-4
    )
    accepted = found.unknown_score[:100] <= model.threshold
    assert accepted.sum() == 96
    statistics, problems = model.fit_scores([UsualDistance()], x[:7], y[:7])
    assert problems == {}
    np.testing.assert_allclose(
        statistics["usual_distance"]["usual"], nearest[:7].mean(), rtol=1e-5
    )
