# SPDX-License-Identifier: Apache-2.0
"""Every score against float64 formulas, alone and inside a classifier."""

import keras
import numpy as np
import pytest
from scipy import special
from scipy import stats

import cac_tf
from cac_tf import scores
from tests import execution
from tests.conftest import blobs
from tests.conftest import small_classifier


@pytest.fixture
def logits(rng):
    values = 3 * rng.standard_normal((50, 4))
    values[0] = [40.0, 0.0, 0.0, 0.0]
    return np.float32(values)


def test_names():
    for name in scores.names():
        assert scores.get(name).name == name
    rule = scores.MaxLogit()
    assert scores.get(rule) is rule
    with pytest.raises(ValueError, match="must be one of gamma, min_dist"):
        scores.get("entropy")


def test_max_logit(logits, mode):
    actual = execution.compiled(scores.MaxLogit(), mode)(logits)
    np.testing.assert_array_equal(actual, -logits)


def test_max_softmax_keeps_confident_inputs_apart(logits, mode):
    actual = execution.compiled(scores.MaxSoftmax(), mode)(logits)
    # The probabilities of the other classes: 1 - p would round, even here.
    p = special.softmax(np.float64(logits), axis=1)
    others = p @ (1.0 - np.eye(4))
    np.testing.assert_allclose(actual, others, rtol=1e-5)
    # 1 - p itself is 0 in float32.
    assert 0 < actual[0].min() < 1e-16


def test_gamma_and_min_distance(rng):
    values = np.float32(rng.uniform(0, 9, (7, 3)))
    for rule in (scores.Gamma(), scores.MinDistance()):
        np.testing.assert_array_equal(np.asarray(rule(values)), values)


def openmax_oracle(logits, labels, inputs, tail_size, rank):
    """OpenMax step by step, one input and one class at a time."""
    logits, inputs = np.float64(logits), np.float64(inputs)
    num_classes = logits.shape[1]
    means, fits = [], []
    for j in range(num_classes):
        own = logits[(labels == j) & (logits.argmax(axis=1) == j)]
        means.append(own.mean(axis=0))
        tail = np.sort(np.linalg.norm(own - means[j], axis=1))[-tail_size:]
        fits.append(stats.weibull_min.fit(tail - tail[0] + 1.0, floc=0.0))
        fits[j] = (fits[j][0], tail[0] - 1.0, fits[j][2])
    unknown = []
    for z in inputs:
        revised, taken = z.copy(), 0.0
        for i, j in enumerate(np.argsort(-z)[:rank]):
            distance = np.linalg.norm(z - means[j])
            share = (1.0 - i / rank) * stats.weibull_min.cdf(distance, *fits[j])
            revised[j] = z[j] * (1.0 - share)
            taken += z[j] * share
        unknown.append(special.softmax(np.r_[revised, taken])[-1])
    return np.array(unknown)


@pytest.mark.parametrize(("tail_size", "rank"), [(20, 10), (10, 2), (5, 1)])
def test_openmax(tail_size, rank, mode, rng):
    labels = np.arange(400) % 4
    logits = 8 * np.eye(4)[labels] + 1.5 * rng.standard_normal((400, 4))
    logits = np.float32(logits)
    inputs = np.float32(4 * rng.standard_normal((60, 4)))
    rule = scores.OpenMax(tail_size, rank)
    assert not rule.is_fitted
    rule.fit(logits, labels)
    assert rule.is_fitted
    actual = execution.compiled(rule, mode)(inputs)
    expected = openmax_oracle(logits, labels, inputs, tail_size, rank)
    np.testing.assert_allclose(
        actual.min(axis=1), expected, rtol=2e-4, atol=1e-6
    )


def test_openmax_bad_input(rng):
    for options in ({"tail_size": 2}, {"rank": 0}):
        with pytest.raises(ValueError, match="must be at least"):
            scores.OpenMax(**options)
    labels = np.array([0] * 10 + [1] * 2)
    with pytest.raises(ValueError, match="class 1 has 2"):
        scores.OpenMax().fit(5 * np.eye(2)[labels], labels)


def trained(score):
    x, y = blobs(np.random.default_rng(0))
    model = small_classifier(score=score)
    model.fit(x, y, epochs=15, verbose=0)
    return model, x, y


@pytest.mark.parametrize("name", scores.names())
def test_in_a_classifier(name, tmp_path):
    """Fit, calibrate, decide, save and load."""
    model, x, y = trained(name)
    if scores.get(name).IS_FITTED_TO_DATA:
        with pytest.raises(ValueError, match="call fit_score"):
            model.predict_scores(x)
        with pytest.raises(ValueError, match="call fit_score"):
            model.calibrate(x, true_positive_rate=0.9)
    model.fit_score(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    out = model.predict_open_set(x)
    assert np.mean(~out.is_unknown) == pytest.approx(0.9, abs=0.02)
    found = model.predict_scores(x)
    rule = model.score
    class_scores = np.asarray(rule(getattr(found, rule.NEEDS)))
    np.testing.assert_allclose(
        found.unknown_score, class_scores.min(axis=1), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_array_equal(
        found.nearest_class_id, class_scores.argmin(axis=1)
    )
    kept = ~out.is_unknown
    np.testing.assert_array_equal(
        out.class_id[kept], found.nearest_class_id[kept]
    )
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.score.name == name
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score, found.unknown_score, rtol=1e-5
    )


def test_training_again_forgets_the_statistics():
    model, x, y = trained("openmax")
    model.fit_score(x, y)
    assert model.score.is_fitted
    model.fit(x, y, epochs=1, verbose=0)
    assert not model.score.is_fitted


def test_fit_score_bad_input():
    model, x, y = trained("openmax")
    with pytest.raises(ValueError, match="needs labels"):
        model.fit_score(x)
    with pytest.raises(ValueError, match="at least one example"):
        model.fit_score(x[:0], y[:0])
    with pytest.raises(ValueError, match="out of range"):
        model.fit_score(x, y + 1)


def test_with_score():
    model, x, y = trained("gamma")
    model.fit_centres(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    other = model.with_score("max_logit")
    assert model.score.name == "gamma"
    assert other.threshold is None
    np.testing.assert_array_equal(other.centres, model.centres)
    one, two = model.predict_scores(x), other.predict_scores(x)
    np.testing.assert_allclose(two.distances, one.distances, rtol=1e-6)
    np.testing.assert_allclose(
        two.unknown_score, -one.logits.max(axis=1), rtol=1e-6
    )


def test_with_score_keeps_what_preprocessing_has_learnt():
    x, y = blobs(np.random.default_rng(0))
    normalise = keras.layers.Normalization()
    normalise.adapt(x)
    model = small_classifier(preprocessing=normalise)
    model.fit(x, y, epochs=2, verbose=0)
    other = model.with_score("max_logit")
    np.testing.assert_allclose(
        other.predict_scores(x).logits, model.predict_scores(x).logits
    )


def test_settings_of_a_score_are_saved(tmp_path):
    model, x, y = trained(scores.OpenMax(tail_size=7, rank=2))
    model.fit_score(x, y)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert (again.score.tail_size, again.score.rank) == (7, 2)
    assert again.score.is_fitted


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="export needs TensorFlow"
)
@pytest.mark.parametrize("name", ["max_softmax", "max_logit", "openmax"])
def test_export(name, tmp_path):
    import tensorflow as tf

    model, x, y = trained(name)
    model.fit_score(x, y)
    model.calibrate(x, true_positive_rate=0.8)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures[
        "serving_default"
    ]
    out = serve(images=tf.constant(x))
    expected = model.predict_open_set(x)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-6
    )
    # Where the score reads logits, so do the probabilities.
    logits = np.float64(model.predict_scores(x).logits)
    np.testing.assert_allclose(
        out["probabilities"], special.softmax(logits, axis=1), atol=1e-5
    )


def test_registered():
    for name in scores.names():
        rule = scores.get(name)
        again = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(rule)
        )
        assert type(again) is type(rule)
