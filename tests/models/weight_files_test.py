# SPDX-License-Identifier: Apache-2.0
"""Weights in files and lists: statistics, class means and theta with them."""

import keras
import numpy as np
import pytest

from cac_tf import scores
from tests.conftest import blobs
from tests.conftest import small_classifier


def network():
    return keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(3),
        ]
    )


def fitted(score, rows=240):
    x, y = blobs(np.random.default_rng(0))
    model = small_classifier(backbone=network(), score=score)
    model.fit(x, y, epochs=3, verbose=0)
    model.fit_centers(x[:rows], y[:rows])
    model.calibrate(x, true_positive_rate=0.9)
    return model, x


def fresh(score):
    model = small_classifier(backbone=network(), score=score)
    model.build((None, 5))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vim", "knn", "gamma", "openmax"])
def test_a_file_of_weights_holds_the_whole_state(name, tmp_path):
    model, x = fitted(name)
    expected = model.predict_open_set(x)
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    # Into one that knows nothing, and one that knows something else.
    for other in (fresh(name), fitted(name, rows=60)[0]):
        other.load_weights(path)
        assert other.threshold == model.threshold
        assert other.score.is_fitted
        found = other.predict_open_set(x)
        np.testing.assert_array_equal(found.class_id, expected.class_id)
        np.testing.assert_allclose(
            found.unknown_score, expected.unknown_score, rtol=1e-5, atol=1e-6
        )


def test_weights_saved_before_a_fit_take_the_statistics_away(tmp_path):
    early = fresh("vim")
    early.save_weights(tmp_path / "early.weights.h5")
    model, x = fitted("vim")
    model.load_weights(tmp_path / "early.weights.h5")
    assert model.threshold is None
    assert not model.score.is_fitted
    with pytest.raises(ValueError, match="call fit_centers"):
        model.predict_scores(x)


def test_weights_of_another_score_are_refused(tmp_path):
    """Their theta is a threshold of that score."""
    model, _ = fitted("vim")
    model.save_weights(tmp_path / "vim.weights.h5")
    for other in ("gamma", "knn", scores.ViM(principal_dimensions=2)):
        with pytest.raises(
            ValueError,
            match=r"belong to a model with the score ViM\(.*this model has",
        ):
            fresh(other).load_weights(tmp_path / "vim.weights.h5")


def test_lists_of_weights(tmp_path):
    model, x = fitted("vim")
    expected = model.predict_scores(x).unknown_score
    weights = model.get_weights()
    model.fit(x, np.arange(len(x)) % 3, epochs=1, verbose=0)
    assert not model.score.is_fitted
    model.set_weights(weights)
    assert model.score.is_fitted and model.threshold is not None
    np.testing.assert_allclose(
        model.predict_scores(x).unknown_score, expected, rtol=1e-5
    )
    with pytest.raises(ValueError, match="'vim' are weights too.*load_weights"):
        fresh("vim").set_weights(weights)
