# SPDX-License-Identifier: Apache-2.0
"""Scores inside of a model: fitted, calibrated, saved, exported."""

import functools

import keras
import numpy as np
import pytest
from scipy import special

import cac_tf
from cac_tf import scores
from cac_tf.models.features import with_features
from cac_tf.scores.registry import common_names
from tests import execution
from tests.conftest import blobs
from tests.conftest import small_classifier

make = cac_tf.OpenSetClassifier.from_classifier
# Compiling takes seconds on JAX: there, one of each kind of score.
IS_TENSORFLOW = execution.BACKEND == "tensorflow"
NAMES = (
    common_names() if IS_TENSORFLOW else ("class_z_score", "gamma", "nnguide")
)
# What does not depend on the backend.
no_backend = pytest.mark.skipif(
    not IS_TENSORFLOW, reason="tested on TensorFlow, the same everywhere"
)
FITTED = [n for n in common_names() if scores.get(n).IS_FITTED_TO_DATA]


def noisy_blobs(seed=0):
    """Apart, but not so far that all scores of a class are alike."""
    x, y = blobs(np.random.default_rng(seed))
    noise = np.random.default_rng(seed + 100).standard_normal(x.shape)
    return np.float32(x + 0.5 * noise), y


@functools.cache
def trained():
    """A model with gamma, of a classifier with two dense layers; its data."""
    keras.utils.set_random_seed(0)
    x, y = noisy_blobs()
    classifier = small_classifier(
        network=keras.Sequential(
            [
                keras.Input([5]),
                keras.layers.Dense(8, activation="relu", name="hidden"),
                keras.layers.Dense(3, name="logits"),
            ]
        )
    )
    classifier.fit(x, y, epochs=15, verbose=0)
    model = make(classifier, (x, y), class_names=list("abc"), score="gamma")
    return model, x, y


def outputs_of(model, x, names):
    """Outputs by name, of all inputs in one batch."""
    ((outputs, *_),) = model.iterate_outputs(x, batch_size=1000, names=names)
    return outputs


@pytest.mark.parametrize("name", NAMES)
def test_fit_calibrate_decide_save_and_load(name, tmp_path):
    of_gamma, x, y = trained()
    model = of_gamma.with_score(name, x, y)
    # An example of the bank is its own neighbour: others are asked.
    x, _ = noisy_blobs(1)
    model.calibrate(x, true_positive_rate=0.9)
    out = model.predict_open_set(x)
    assert np.mean(~out.is_unknown) == pytest.approx(0.9, abs=0.02)
    rule = model.score
    outputs = outputs_of(of_gamma, x, (*rule.READS, "logits", "distances"))
    statistics = {k: np.asarray(v) for k, v in model.statistics.items()}
    np.testing.assert_allclose(
        out.unknown_score,
        rule.of_arrays(*(outputs[n] for n in rule.READS), **statistics),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_array_equal(
        out.predicted_class_id,
        np.asarray(rule.predicted_class(outputs, **statistics)),
    )
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.score.name == name and again.threshold == model.threshold
    for key, value in statistics.items():
        np.testing.assert_array_equal(again.statistics[key], value)


@pytest.mark.parametrize("name", FITTED if IS_TENSORFLOW else ["vim"])
def test_neither_batches_nor_order_matter(name):
    """One example at a time, in batches, at once, backwards: the same."""
    model, x, y = trained()
    found = []
    for rows, batch_size in (
        (np.arange(len(x)), len(x)),
        (np.arange(len(x)), 37),
        (np.arange(len(x))[::-1], 64),
        (np.random.default_rng(2).permutation(len(x)), 5),
    ):
        fitted, _ = model.fit_scores(
            [scores.get(name)], x[rows], y[rows], batch_size
        )
        statistics = fitted[name]
        rule = scores.get(name)
        outputs = outputs_of(model, x, rule.READS)
        unknown_score = rule.of_arrays(
            *(outputs[n] for n in rule.READS), **statistics
        )
        if name == "vim":
            # Any basis of the residual space is as good.
            basis = statistics["residual_space"]
            statistics = {**statistics, "residual_space": basis @ basis.T}
        found.append((statistics, unknown_score))
    for statistics, unknown_score in found[1:]:
        for key, value in found[0][0].items():
            size = np.abs(value).max()
            np.testing.assert_allclose(
                statistics[key], value, rtol=1e-5, atol=1e-5 * size
            )
        np.testing.assert_allclose(
            unknown_score, found[0][1], rtol=1e-5, atol=2e-5
        )


@no_backend
def test_a_layer_that_is_named_gives_the_features(tmp_path):
    classifier = keras.Sequential(
        [
            keras.Input([8, 6, 1]),
            keras.layers.Conv2D(4, 3, name="map"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    x = np.float32(np.random.default_rng(0).random((90, 8, 6, 1)))
    y = classifier.predict(x, verbose=0).argmax(axis=1)
    model = make(
        classifier,
        (x, y),
        class_names=list("abc"),
        score="mahalanobis",
        centers="anchors",
        features_layer="map",
    )
    # Means over the places of a map.
    maps = keras.Model(classifier.inputs[0], classifier.layers[0].output)(x)
    assert maps.shape == (90, 6, 4, 4)
    np.testing.assert_allclose(
        outputs_of(model, x, ["features"])["features"],
        np.mean(maps, axis=(1, 2)),
        atol=1e-6,
    )
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score,
        model.predict_scores(x).unknown_score,
        rtol=1e-5,
    )


@no_backend
def test_the_layer_that_is_named_is_that_of_the_graph():
    """Not the layer's first call, wherever that was."""
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")
    elsewhere = keras.Input([5])
    keras.Model(elsewhere, hidden(elsewhere))
    backbone = keras.Sequential()
    backbone.add(keras.Input([5]))
    backbone.add(hidden)
    backbone.add(keras.layers.Dense(3, name="out"))
    both, last = with_features(backbone, "hidden")
    assert last is backbone.layers[-1]
    x = np.ones((2, 5), "float32")
    features, _ = both(x)
    np.testing.assert_allclose(features, hidden(x))
    again = keras.layers.Dense(8, name="again")
    inputs = keras.Input([8])
    outputs = keras.layers.Dense(3)(again(again(inputs)))
    with pytest.raises(ValueError, match="There are several calls of 'again'"):
        with_features(keras.Model(inputs, outputs), "again")


# ---- export ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="export needs TensorFlow"
)
@pytest.mark.parametrize("name", common_names())
def test_export(name, tmp_path):
    import tensorflow as tf

    of_gamma, x, y = trained()
    model = of_gamma.with_score(name, x, y)
    model.calibrate(x, true_positive_rate=0.8)
    expected = model.predict_open_set(x)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures[
        "serving_default"
    ]
    bad = np.float32([[np.nan] * 5, [np.inf] * 5, [3e38] * 5])
    out = serve(tf.constant(np.concatenate([x, bad])))
    n = len(x)
    # An input whose score is the threshold itself may fall to either side.
    apart = np.abs(expected.unknown_score - model.threshold) > 1e-5
    np.testing.assert_array_equal(
        out["class_id"][:n][apart], expected.class_id[apart]
    )
    np.testing.assert_allclose(
        out["unknown_score"][:n], expected.unknown_score, rtol=1e-5, atol=1e-5
    )
    assert not out["is_valid"][n:].numpy().any()
    assert (out["class_id"][n:].numpy() == -1).all()
    for value in out.values():
        if value.dtype.is_floating:
            assert np.isfinite(value).all()
    if not model.score.reads_distances:
        # Where the score reads logits, so do the probabilities.
        logits = np.float64(model.predict_scores(x).logits)
        np.testing.assert_allclose(
            out["probabilities"][:n],
            special.softmax(logits, axis=1),
            atol=1e-5,
        )


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="export needs TensorFlow"
)
def test_export_of_two_views(tmp_path):
    import tensorflow as tf

    classifier = keras.Sequential(
        [
            keras.Input([6, 5, 1]),
            cac_tf.layers.ImagePreprocessing(6, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    x = np.random.default_rng(0).uniform(0, 255, (90, 6, 5, 1))
    x = np.float32(x)
    model = make(
        classifier,
        (x, np.arange(90) % 3),
        score="nnguide",
        centers="anchors",
        tta="flip",
    )
    model.calibrate(x, true_positive_rate=0.8)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures[
        "serving_default"
    ]
    out = serve(tf.constant(x))
    mirrored = serve(tf.constant(x[:, :, ::-1]))
    np.testing.assert_allclose(
        out["unknown_score"],
        model.predict_scores(x).unknown_score,
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        out["unknown_score"], mirrored["unknown_score"], rtol=1e-5, atol=1e-5
    )
