# SPDX-License-Identifier: Apache-2.0
"""Every registered score, those of other packages too, by the same suite."""

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import scores
from tests import execution

NUM_CLASSES, WIDTH, ROWS = 3, 6, 120


def outputs_of_blobs(rng):
    """Labels, and what a classifier says of separable blobs, by name."""
    labels = np.arange(ROWS) % NUM_CLASSES
    features = 3.0 * np.eye(NUM_CLASSES, WIDTH)[labels]
    features = features + 0.4 * rng.standard_normal((ROWS, WIDTH))
    logits = 3.0 * features[:, :NUM_CLASSES]
    centers = 9.0 * np.eye(NUM_CLASSES)
    distances = np.linalg.norm(logits[:, None] - centers, axis=-1)
    share = np.exp(-distances)
    share /= share.sum(axis=1, keepdims=True)
    outputs = {
        "features": features,
        "logits": logits,
        "distances": distances,
        "gamma": distances * (1.0 - share),
        "latents": features[:, 2:],
    }
    return labels, {k: np.float32(v) for k, v in outputs.items()}


@pytest.fixture(params=scores.names())
def fitted(request, rng):
    """A score, fitted where it learns, and arguments for it."""
    score = scores.get(request.param)
    labels, outputs = outputs_of_blobs(rng)
    unknown = sorted(set(score.READS) - set(outputs))
    if unknown:
        pytest.skip(f"reads {', '.join(unknown)}, outputs of its own method")
    if score.IS_FITTED_TO_DATA:
        score.fit(labels, **outputs)
    return score, score.arguments_of(outputs), outputs


def test_the_same_in_every_mode(fitted, mode):
    score, arguments, _ = fitted
    compiled = execution.compiled(score, mode)
    np.testing.assert_allclose(
        compiled(*arguments), score.of_arrays(*arguments), rtol=2e-5, atol=2e-5
    )


def test_one_float32_for_each_row_alone_as_in_a_batch(fitted):
    score, arguments, _ = fitted
    values = np.asarray(score(*arguments))
    assert values.shape == (ROWS,) and values.dtype == np.float32
    assert np.isfinite(values).all()
    if score.IS_NON_NEGATIVE:
        assert values.min() >= 0
    for row in (0, 7):
        one = np.asarray(score(*(a[row : row + 1] for a in arguments)))
        np.testing.assert_allclose(one, values[row], rtol=1e-5, atol=1e-5)


def test_half_precision_is_computed_in_full(fitted):
    score, arguments, _ = fitted
    for dtype in ("float16", "bfloat16"):
        half = [keras.ops.cast(a, dtype) for a in arguments]
        rounded = [keras.ops.cast(a, "float32") for a in half]
        values = score(*half)
        assert keras.backend.standardize_dtype(values.dtype) == "float32"
        np.testing.assert_allclose(
            np.asarray(values),
            np.asarray(score(*rounded)),
            rtol=1e-5,
            atol=1e-5,
        )


def test_config_and_copy(fitted):
    score, arguments, _ = fitted
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(score)
    )
    assert again.get_config() == score.get_config()
    assert again.name == score.name
    np.testing.assert_array_equal(
        score.copy()(*arguments), np.asarray(score(*arguments))
    )


def test_the_predicted_class_is_one_of_the_known(fitted):
    score, _, outputs = fitted
    predicted = np.asarray(score.predicted_class(outputs))
    assert predicted.shape == (ROWS,)
    assert np.mean(predicted == np.arange(ROWS) % NUM_CLASSES) > 0.9


def test_fit_says_what_is_missing(fitted):
    score, _, outputs = fitted
    missing = score.READS[0]
    others = {k: v for k, v in outputs.items() if k != missing}
    with pytest.raises(ValueError, match=missing):
        type(score).from_config(score.get_config()).fit(
            np.arange(ROWS) % NUM_CLASSES, **others
        )


def test_through_a_classifier(fitted, rng, tmp_path):
    """Fitted, calibrated, saved, loaded; on TensorFlow exported."""
    name = fitted[0].name
    labels, outputs = outputs_of_blobs(rng)
    x = outputs["features"]
    inputs = keras.Input([WIDTH])
    dense = keras.layers.Dense(NUM_CLASSES)
    outputs = {"logits": dense(inputs), "latents": inputs[:, 2:]}
    model = cac_tf.OpenSetClassifier(
        keras.Model(inputs, outputs), ["a", "b", "c"], score=name
    )
    model.build((None, WIDTH))
    kernel = 3.0 * np.eye(WIDTH, NUM_CLASSES)
    dense.set_weights([kernel, np.zeros(NUM_CLASSES)])
    # Nearest neighbours find themselves, so others calibrate.
    model.fit_centers(x[: ROWS // 2], labels[: ROWS // 2])
    x = x[ROWS // 2 :]
    theta = model.calibrate(x, true_positive_rate=0.9)
    expected = model.predict_open_set(x)
    assert np.sum(~expected.is_unknown) == np.ceil(0.9 * (ROWS // 2 + 1))
    model.save(tmp_path / "model.keras")
    loaded = cac_tf.load_model(tmp_path / "model.keras")
    assert loaded.threshold == theta
    np.testing.assert_array_equal(
        loaded.predict_open_set(x).unknown_score, expected.unknown_score
    )
    if execution.BACKEND != "tensorflow":
        return
    import tensorflow as tf

    model.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served")).signatures
    out = served["serving_default"](images=tf.constant(x))
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-5
    )
