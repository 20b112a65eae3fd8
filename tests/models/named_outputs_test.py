# SPDX-License-Identifier: Apache-2.0
"""A classifier with outputs of its own, a loss and a score that read them."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import cac_tf
from cac_tf import losses
from cac_tf import scores
from cac_tf.models.network import Network
from cac_tf.training import ClassifierTraining
from tests import oracle
from tests.conftest import blobs
from tests.execution import BACKEND

make = cac_tf.OpenSetClassifier.from_classifier


@keras.saving.register_keras_serializable(package="CacTfTestsNamed")
class SquaredError(losses.Loss):
    """Of the reconstruction of each input."""

    READS = ("reconstruction", "original")

    def call(self, y_true, y_pred):
        error = y_pred["reconstruction"] - y_pred["original"]
        return ops.sum(ops.square(error), axis=-1)


@keras.saving.register_keras_serializable(package="CacTfTestsNamed")
class ErrorAndGamma(scores.Score):
    """The smallest gamma and how unusual the error is among known inputs."""

    NAME = "error_and_gamma"
    READS = ("gamma", "reconstruction", "original")
    IS_FITTED_TO_DATA = True

    def start(self, context):
        return []

    def update(self, kept, batch):
        error = np.float64(batch["reconstruction"]) - batch["original"]
        kept.append((error**2).sum(axis=1))

    def finish(self, kept, context):
        errors = np.concatenate(kept)
        return {"mean": errors.mean(), "deviation": errors.std()}

    def call(self, gamma, reconstruction, original, *, mean, deviation):
        error = ops.sum(ops.square(reconstruction - original), axis=-1)
        unusual = (error - mean) / deviation
        return ops.min(gamma, axis=-1) + unusual


def autoencoder(with_features=False):
    """Logits and a reconstruction out of one hidden layer."""
    inputs = keras.Input([5])
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")(inputs)
    outputs = {
        "logits": keras.layers.Dense(3, name="out")(hidden),
        "reconstruction": keras.layers.Dense(5, name="decode")(hidden),
        "original": keras.layers.Identity()(inputs),
    }
    if with_features:
        outputs["features"] = hidden
    return keras.Model(inputs, outputs)


@functools.cache
def trained(with_features):
    """A classifier that classifies and reconstructs, inputs and labels."""
    keras.utils.set_random_seed(0)
    x, y = blobs(np.random.default_rng(0))
    classifier = autoencoder(with_features)
    start = expected_outputs(classifier, x)
    training = ClassifierTraining(classifier)
    training.compile(
        keras.optimizers.SGD(0.05), [losses.CACLoss(), SquaredError()]
    )
    history = training.fit(x, y, batch_size=240, verbose=0).history
    first = cac_loss(y, start["logits"]) + squared_error(start)
    assert history["loss"][0] == pytest.approx(first.mean(), rel=1e-4)
    training.fit(x, y, epochs=20, verbose=0)
    return classifier, x, y


def cac_loss(y, logits):
    return oracle.cac_loss(y, oracle.distances(logits, 10 * np.eye(3)))


def expected_outputs(classifier, x):
    """The outputs of the classifier, in float64, from its weights."""
    layer = {layer.name: layer for layer in classifier.layers}

    def dense(name, values):
        kernel, bias = layer[name].kernel, layer[name].bias
        return values @ np.float64(kernel) + np.float64(bias)

    x = np.float64(x)
    hidden = np.maximum(dense("hidden", x), 0.0)
    return {
        "features": hidden,
        "logits": dense("out", hidden),
        "reconstruction": dense("decode", hidden),
        "original": x,
    }


def squared_error(outputs):
    error = outputs["reconstruction"] - outputs["original"]
    return (error**2).sum(axis=1)


def test_from_a_classifier_to_decisions_and_back_from_disk(rng, tmp_path):
    classifier, x, y = trained(True)
    model = make(
        classifier,
        (x, y),
        class_names=list("abc"),
        score=ErrorAndGamma(),
        batch_size=100,
    )
    expected = expected_outputs(classifier, x)
    expected["distances"] = oracle.distances(expected["logits"], model.centers)
    expected["gamma"] = oracle.gamma(expected["distances"])
    errors = squared_error(expected)
    unusual = (errors - errors.mean()) / errors.std()
    score = expected["gamma"].min(axis=1) + unusual
    threshold = model.calibrate(x, true_positive_rate=0.9, batch_size=50)
    assert np.sum(score <= threshold) == np.ceil(0.9 * 241)

    outputs = model.predict(x, verbose=0)
    own = {"unknown_score", "predicted_class_id", "class_id", "p_value"}
    assert set(outputs) == {*expected, *own}
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=2e-4, atol=1e-4)
    ((some, *_),) = model.iterate_outputs(x, names=("reconstruction",))
    np.testing.assert_allclose(
        some["reconstruction"], outputs["reconstruction"], atol=1e-5
    )

    far = np.concatenate([x, np.float32(rng.normal(0, 4, (50, 5)))])
    decided = model.predict_open_set(far)
    assert decided.is_unknown[len(x) :].mean() > 0.8
    np.testing.assert_allclose(
        decided.unknown_score[: len(x)], score, rtol=1e-3, atol=1e-3
    )
    # By the centers, since the score reads gamma.
    np.testing.assert_array_equal(
        decided.predicted_class_id[: len(x)],
        expected["distances"].argmin(axis=1),
    )
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    for name, value in again.predict(x, verbose=0).items():
        np.testing.assert_allclose(value, outputs[name], rtol=1e-6, atol=1e-6)


@keras.saving.register_keras_serializable(package="CacTfTestsNamed")
class OwnCode(keras.Model):
    """A dict out of a network whose graph cannot be seen."""

    def __init__(self, names=("logits", "reconstruction"), **kwargs):
        super().__init__(**kwargs)
        self.names = tuple(names)
        self.heads = [
            keras.layers.Dense(3 if n == "logits" else 5) for n in names
        ]

    def call(self, inputs):
        return {
            n: d(inputs) for n, d in zip(self.names, self.heads, strict=True)
        }

    def get_config(self):
        return {"names": list(self.names)}


def test_a_subclassed_classifier_with_names(rng, tmp_path):
    classifier = OwnCode()
    x = np.float32(rng.random((20, 5)))
    before = {k: np.asarray(v) for k, v in classifier(x).items()}
    y = before["logits"].argmax(axis=1)
    model = make(classifier, (x, y), class_names=list("abc"), score="gamma",
                 centers="anchors")  # fmt: skip
    outputs = model.predict(x, verbose=0)
    assert "features" not in outputs
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    again = again.predict(x, verbose=0)
    for name, value in before.items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5)
        np.testing.assert_allclose(again[name], value, rtol=1e-5)


def test_bad_dicts(rng):
    x, y = blobs(rng)
    message = "the key 'logits'; its outputs are features, reconstruction"
    inputs = keras.Input([5])
    names = ("reconstruction", "features")
    outputs = {name: keras.layers.Dense(5)(inputs) for name in names}
    hidden = OwnCode(names)
    hidden(x)
    for classifier in (hidden, keras.Model(inputs, outputs)):
        with pytest.raises(ValueError, match=message):
            make(classifier, (x, y))
    plain = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    for classifier, options, message in (
        (autoencoder(), {"class_names": list("abcd")}, "3 outputs for 4 class"),
        (
            autoencoder(with_features=True),
            {"features_layer": "hidden"},
            "features.*features_layer",
        ),
        (
            plain,
            {"score": ErrorAndGamma()},
            "score 'error_and_gamma' needs 'reconstruction'.*features, logit",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(classifier, (x, y), **options)


def test_both_views_of_logits_and_features_alone(rng):
    """Other outputs are those of the image as it is."""
    inputs = keras.Input([4, 4, 1])
    flat = keras.layers.Flatten()(inputs)
    outputs = {
        "logits": keras.layers.Dense(3)(flat),
        "reconstruction": keras.layers.Dense(4)(flat),
    }
    network = Network(keras.Model(inputs, outputs), tta="flip")
    x = np.float32(rng.random((6, 4, 4, 1)))
    both = network(x)
    plain = network(x, single_view=True)
    mirrored = network(x[:, :, ::-1], single_view=True)
    for name in ("logits", "features"):
        np.testing.assert_allclose(
            both[name],
            (np.asarray(plain[name]) + np.asarray(mirrored[name])) / 2,
            atol=1e-6,
        )
    np.testing.assert_allclose(
        both["reconstruction"], plain["reconstruction"], atol=1e-6
    )


@pytest.mark.skipif(BACKEND != "tensorflow", reason="export needs TensorFlow")
def test_exported(tmp_path):
    import tensorflow as tf

    classifier, x, y = trained(False)
    model = make(classifier, (x, y), score=ErrorAndGamma())
    model.calibrate(x, true_positive_rate=0.8)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved"))
    out = serve.signatures["serving_default"](tf.constant(x))
    expected = model.predict_open_set(x)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-5
    )
