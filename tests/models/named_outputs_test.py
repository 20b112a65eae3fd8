# SPDX-License-Identifier: Apache-2.0
"""A backbone with outputs of its own, a loss and a score that read them."""

import keras
import numpy as np
import pytest
from keras import ops

import cac_tf
from cac_tf import losses
from cac_tf import scores
from cac_tf.models.network import Network
from tests import oracle
from tests.conftest import blobs
from tests.execution import BACKEND


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

    def start_fit(self, num_classes):
        return []

    def add_batch(self, kept, batch):
        error = np.float64(batch["reconstruction"]) - batch["original"]
        kept.append((error**2).sum(axis=1))

    def finish_fit(self, kept, known):
        errors = np.concatenate(kept)
        self.set_statistics(mean=errors.mean(), deviation=errors.std())

    def call(self, gamma, reconstruction, original):
        error = ops.sum(ops.square(reconstruction - original), axis=-1)
        unusual = (error - self.statistic("mean")) / self.statistic("deviation")
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


def compiled(backbone, score="gamma", **options):
    model = cac_tf.OpenSetClassifier(
        backbone, ["a", "b", "c"], score=score, **options
    )
    model.compile(
        keras.optimizers.SGD(0.05),
        loss=[losses.CACLoss(), SquaredError()],
        loss_weights=[1.0, 0.5],
        metrics=["accuracy", cac_tf.metrics.AnchorLoss()],
    )
    return model


def expected_outputs(model, x):
    """Every output, in float64, from the backbone's weights."""
    layer = {layer.name: layer for layer in model.backbone.layers}

    def dense(name, values):
        kernel, bias = layer[name].kernel, layer[name].bias
        return values @ np.float64(kernel) + np.float64(bias)

    x = np.float64(x)
    hidden = np.maximum(dense("hidden", x), 0.0)
    logits = dense("out", hidden)
    distances = oracle.distances(logits, model.centers)
    return {
        "features": hidden,
        "logits": logits,
        "reconstruction": dense("decode", hidden),
        "original": x,
        "distances": distances,
        "gamma": oracle.gamma(distances),
    }


def squared_error(outputs):
    error = outputs["reconstruction"] - outputs["original"]
    return (error**2).sum(axis=1)


@pytest.mark.parametrize("with_features", [False, True])
def test_from_training_to_decisions_and_back_from_disk(
    rng, tmp_path, with_features
):
    x, y = blobs(rng)
    model = compiled(autoencoder(with_features), ErrorAndGamma())
    model.build((None, 5))
    start = expected_outputs(model, x)
    first = oracle.cac_loss(y, start["distances"]) + 0.5 * squared_error(start)
    history = model.fit(x, y, batch_size=240, epochs=1, verbose=0).history
    assert history["loss"][0] == pytest.approx(first.mean(), rel=1e-4)
    model.fit(x, y, epochs=20, verbose=0, validation_data=(x, y))
    trained = expected_outputs(model, x)
    assert squared_error(trained).mean() < 0.3 * squared_error(start).mean()

    with pytest.raises(ValueError, match="'error_and_gamma'"):
        model.calibrate(x, true_positive_rate=0.9)
    model.fit_centers(x, y, batch_size=100)
    expected = expected_outputs(model, x)
    errors = squared_error(expected)
    unusual = (errors - errors.mean()) / errors.std()
    score = expected["gamma"].min(axis=1) + unusual
    theta = model.calibrate(x, true_positive_rate=0.9, batch_size=50)
    assert np.sum(score <= theta) == np.ceil(0.9 * 241)

    outputs = model.predict(x, verbose=0)
    assert sorted(outputs) == sorted(expected)
    assert sorted(model.names_of_outputs) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=2e-4, atol=1e-4)

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
    assert again.threshold == theta
    assert again.score.is_fitted
    for name, value in again.predict(x, verbose=0).items():
        np.testing.assert_allclose(value, outputs[name], rtol=1e-6, atol=1e-6)
    after = again.predict_open_set(far)
    np.testing.assert_array_equal(after.class_id, decided.class_id)
    np.testing.assert_allclose(
        again.evaluate(x, y, verbose=0),
        model.evaluate(x, y, verbose=0),
        rtol=1e-5,
    )
    again.fit(x, y, epochs=1, verbose=0)
    assert not again.score.is_fitted


def test_some_outputs_by_name(rng):
    x, _ = blobs(rng, rows=10)
    model = compiled(autoencoder())
    model.build((None, 5))
    names = ("reconstruction", "predicted_class_id", "unknown_score")
    found = model.outputs_of(ops.convert_to_tensor(x), names)
    assert list(found) == list(names)
    expected = expected_outputs(model, x)
    np.testing.assert_allclose(
        found["reconstruction"], expected["reconstruction"], atol=1e-5
    )
    batches = list(
        model.iterate_outputs(x, np.arange(10), 4, names=("reconstruction",))
    )
    assert [len(inputs) for _, _, inputs, _ in batches] == [4, 4, 2]
    np.testing.assert_allclose(
        np.concatenate([out["reconstruction"] for out, *_ in batches]),
        expected["reconstruction"],
        atol=1e-5,
    )
    labels = np.concatenate([labels for _, labels, *_ in batches])
    np.testing.assert_array_equal(labels, np.arange(10))


def test_names_of_stock_losses_and_metrics_are_those_of_outputs(rng):
    """Where `y_pred` is the output alone, not the dict."""
    x, y = blobs(rng, rows=60)
    model = compiled(autoencoder())
    model.compile(
        "sgd",
        loss={"logits": cac_tf.losses.CrossEntropyLoss()},
        metrics={"reconstruction": [_MeanSquare()], "logits": "accuracy"},
    )
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    expected = expected_outputs(model, x)
    assert found["mean_square"] == pytest.approx(
        (expected["reconstruction"] ** 2).mean(), rel=1e-4
    )
    assert found["accuracy"] == pytest.approx(
        (expected["logits"].argmax(axis=1) == y).mean()
    )


class _MeanSquare(keras.metrics.Mean):
    """Knows nothing of our outputs, as a stock metric."""

    def __init__(self):
        super().__init__(name="mean_square")

    def update_state(self, y_true, y_pred, sample_weight=None):
        rows = ops.mean(ops.square(y_pred), axis=-1)
        return super().update_state(rows, sample_weight)


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


def test_a_subclassed_backbone_with_names(rng, tmp_path):
    x, y = blobs(rng)
    model = cac_tf.OpenSetClassifier(OwnCode(), ["a", "b", "c"])
    model.compile(
        keras.optimizers.SGD(0.1),
        [losses.CACLoss(), {"reconstruction": _squared_size}],
    )
    model.fit(x, y, epochs=5, verbose=0)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    assert sorted(model.names_of_outputs) == [
        "distances",
        "gamma",
        "logits",
        "reconstruction",
    ]
    assert not model.has_features
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    for name, value in again.predict(x, verbose=0).items():
        np.testing.assert_allclose(
            value, model.predict(x, verbose=0)[name], rtol=1e-6
        )


def _squared_size(y_true, y_pred):
    return ops.sum(ops.square(y_pred), axis=-1)


def test_bad_dicts():
    message = "'logits' in it; its outputs are features, reconstruction"
    model = cac_tf.OpenSetClassifier(
        OwnCode(["reconstruction", "features"]), ["a", "b", "c"]
    )
    with pytest.raises(ValueError, match=message):
        model.build((None, 5))
    inputs = keras.Input([5])
    names = ("reconstruction", "features")
    backbone = keras.Model(
        inputs, {name: keras.layers.Dense(5)(inputs) for name in names}
    )
    with pytest.raises(ValueError, match=message):
        cac_tf.OpenSetClassifier(backbone, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"must be \(batch, 4\)"):
        cac_tf.OpenSetClassifier(autoencoder(), list("abcd"))
    model = cac_tf.OpenSetClassifier(
        autoencoder(with_features=True), list("abc"), features_layer="hidden"
    )
    with pytest.raises(ValueError, match="features.*features_layer"):
        model.build((None, 5))
    rule = ErrorAndGamma()
    plain = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    model = cac_tf.OpenSetClassifier(plain, list("abc"), score=rule)
    with pytest.raises(
        ValueError,
        match="score 'error_and_gamma' reads 'reconstruction'.*features, logit",
    ):
        model.build((None, 5))


def test_a_bounded_dict_is_refused():
    inputs = keras.Input([5])
    logits = keras.layers.Dense(3, activation="softmax")(inputs)
    backbone = keras.Model(inputs, {"logits": logits, "original": inputs})
    with pytest.raises(ValueError, match="never reach an anchor"):
        cac_tf.OpenSetClassifier(backbone, list("abc"))


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
    network.build(x.shape)
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
    for name, value in network(x, training=True).items():
        np.testing.assert_allclose(value, plain[name], atol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="export needs TensorFlow")
def test_exported(rng, tmp_path):
    import tensorflow as tf

    x, y = blobs(rng)
    model = compiled(autoencoder(), ErrorAndGamma())
    model.fit(x, y, epochs=3, verbose=0)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.8)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved"))
    out = serve.signatures["serving_default"](images=tf.constant(x))
    expected = model.predict_open_set(x)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-5
    )


def test_the_accuracy_of_another_output(rng):
    """It is that of its largest value, whatever other outputs there are."""
    x, y = blobs(rng)
    inputs = keras.Input([5])
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    outputs = {
        name: keras.layers.Dense(3, name=name)(hidden)
        for name in ("logits", "second_logits")
    }
    model = cac_tf.OpenSetClassifier(keras.Model(inputs, outputs), list("abc"))
    stock = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        "adam",
        [losses.CACLoss(), {"second_logits": stock}],
        metrics={"second_logits": "accuracy"},
    )
    model.fit(x, y, epochs=2, verbose=0)
    values = model.predict(x, verbose=0)["second_logits"]
    found = model.evaluate(x, y, verbose=0, return_dict=True)["accuracy"]
    assert found == pytest.approx((values.argmax(axis=1) == y).mean())
