# SPDX-License-Identifier: Apache-2.0
"""Every registered loss, those of other packages too, by the same suite."""

import keras
import numpy as np
import pytest

from cac_tf import losses
from cac_tf import metrics
from cac_tf.losses.loss import select
from cac_tf.training import ClassifierTraining
from tests import execution

NUM_CLASSES, ROWS = 4, 12


@pytest.fixture(params=losses.names())
def loss(request):
    return losses.find(request.param)()


@pytest.fixture
def outputs(rng):
    """Outputs of a classifier by name, float64 and well conditioned."""
    return {
        "logits": rng.normal(size=(ROWS, NUM_CLASSES)) * 2,
        "features": rng.normal(size=(ROWS, 5)),
    }


LABELS = np.arange(ROWS) % NUM_CLASSES


def read(loss, outputs):
    missing = sorted(set(loss.READS) - set(outputs))
    if missing:
        pytest.skip(f"reads {', '.join(missing)}, outputs of its own method")
    return select(outputs, loss.READS)


def test_says_what_it_reads(loss):
    assert loss.NAME and loss.READS
    assert isinstance(loss.TAKES_NEGATIVES, bool)


def test_config(loss, outputs):
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert again.get_config() == loss.get_config()
    y_pred = keras.tree.map_structure(np.float32, read(loss, outputs))
    np.testing.assert_array_equal(again(LABELS, y_pred), loss(LABELS, y_pred))


def test_values_are_finite_float32_and_reduced(loss, outputs):
    y_pred = keras.tree.map_structure(np.float32, read(loss, outputs))
    values = np.asarray(loss.call(LABELS, y_pred))
    assert values.shape == (ROWS,) and np.isfinite(values).all()
    np.testing.assert_allclose(loss(LABELS, y_pred), values.mean(), rtol=1e-5)
    weights = np.float32(np.arange(ROWS) / ROWS)
    np.testing.assert_allclose(
        loss(LABELS, y_pred, weights), np.mean(values * weights), rtol=1e-4
    )


def test_an_ignored_class_has_no_part(loss, outputs):
    y_pred = keras.tree.map_structure(np.float32, read(loss, outputs))
    kept = LABELS != 1
    expected = np.asarray(loss.call(LABELS, y_pred))[kept].mean()
    config = {**loss.get_config(), "ignore_class": 1}
    found = type(loss).from_config(config)(LABELS, y_pred)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_same_in_every_mode(loss, outputs, mode):
    y_pred = keras.tree.map_structure(np.float32, read(loss, outputs))
    names = sorted(y_pred) if isinstance(y_pred, dict) else None
    arrays = [y_pred[n] for n in names] if names else [y_pred]

    def value(labels, *arrays):
        pred = dict(zip(names, arrays, strict=True)) if names else arrays[0]
        return loss(labels, pred)

    compiled = execution.compiled(value, mode)
    np.testing.assert_allclose(
        compiled(LABELS, *arrays), loss(LABELS, y_pred), rtol=1e-5
    )


def test_gradient_by_finite_differences(loss, outputs, rng):
    y_pred = read(loss, outputs)
    name = next(iter(y_pred)) if isinstance(y_pred, dict) else None

    def value(array):
        pred = {**y_pred, name: array} if name else array
        with_dtype = type(loss).from_config(
            {**loss.get_config(), "dtype": "float64"}
        )
        return with_dtype(LABELS, pred)

    at = y_pred[name] if name else y_pred
    with execution.float64():
        gradient = execution.gradient(value)(at)
    direction = rng.normal(size=at.shape)
    step = 1e-5
    with execution.float64():
        difference = float(value(at + step * direction)) - float(
            value(at - step * direction)
        )
    np.testing.assert_allclose(
        np.sum(gradient * direction),
        difference / (2 * step),
        rtol=2e-4,
        atol=1e-6,
    )


def test_negatives(loss, outputs):
    """-1 is finite where negatives are taken, and NaN where they are not."""
    y_pred = keras.tree.map_structure(np.float32, read(loss, outputs))
    labels = np.where(LABELS == 0, -1, LABELS)
    values = np.asarray(loss.call(labels, y_pred))
    assert np.isfinite(values[labels >= 0]).all()
    assert np.isfinite(values[labels < 0]).all() == loss.TAKES_NEGATIVES


def test_it_trains_a_classifier(loss, rng, tmp_path):
    """Of logits alone in plain Keras too, which saves it with the model."""
    missing = set(loss.READS) - {"logits", "features"}
    if missing:
        pytest.skip(f"reads {', '.join(missing)}, outputs of its own method")
    labels = np.r_[LABELS, [-1] * 4] if loss.TAKES_NEGATIVES else LABELS
    x = 0.1 * rng.normal(size=(len(labels), NUM_CLASSES))
    x = np.float32(x + (labels[:, None] == np.arange(NUM_CLASSES)))
    inputs = keras.Input([NUM_CLASSES])
    dense = keras.layers.Dense(NUM_CLASSES)
    logits = dense(inputs)
    start = dense.get_weights()
    outputs = {"logits": logits, "features": inputs}
    training = ClassifierTraining(keras.Model(inputs, outputs))
    training.compile(
        keras.optimizers.SGD(0.01), loss, [metrics.KnownAccuracy()]
    )
    history = training.fit(x, labels, epochs=8, verbose=0).history["loss"]
    assert history[-1] < history[0]
    if loss.READS != ("logits",):
        return
    dense.set_weights(start)
    model = keras.Model(inputs, logits)
    model.compile(keras.optimizers.SGD(0.01), loss)
    plain = model.fit(x, labels, epochs=8, verbose=0).history["loss"]
    np.testing.assert_allclose(plain, history, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.loss) is type(loss)
    assert again.evaluate(x, labels, verbose=0) == pytest.approx(
        model.evaluate(x, labels, verbose=0)
    )
