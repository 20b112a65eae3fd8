# SPDX-License-Identifier: Apache-2.0
"""Every registered score, those of other packages too, by the same suite."""

import functools

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import scores
from cac_tf.export.saved_model import graphs_and_description
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from tests import execution

NUM_CLASSES, WIDTH, ROWS = 3, 6, 120
# These are classified wrongly, a whole batch of them.
WRONG = slice(50, 56)


def outputs_of_blobs():
    """Labels, and what a classifier says of separable blobs, by name."""
    rng, labels = np.random.default_rng(0), np.arange(ROWS) % NUM_CLASSES
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
    labels[WRONG] = (labels[WRONG] + 1) % NUM_CLASSES
    return labels, {k: np.float32(v) for k, v in outputs.items()}


@pytest.fixture(params=scores.names(), scope="module")
def fitted(request):
    """A score, its statistics, and outputs by name that it reads."""
    score = scores.get(request.param)
    labels, outputs = outputs_of_blobs()
    unknown = sorted(set(score.READS) - set(outputs))
    if unknown:
        pytest.skip(f"reads {', '.join(unknown)}, outputs of its own method")
    return score, score.fit(labels, **outputs), outputs


def function_of(fitted):
    """The score as a function of tensors, and these as arrays."""
    score, statistics, outputs = fitted
    return functools.partial(score, **statistics), score.arguments_of(outputs)


def test_the_same_in_every_mode(fitted, mode):
    score, statistics, _ = fitted
    function, arguments = function_of(fitted)
    np.testing.assert_allclose(
        execution.compiled(function, mode)(*arguments),
        score.of_arrays(*arguments, **statistics),
        rtol=2e-5,
        atol=2e-5,
    )


def test_statistics_are_arrays_and_none_where_nothing_is_learnt(fitted):
    score, statistics, _ = fitted
    assert bool(statistics) == score.IS_FITTED_TO_DATA
    for name, value in statistics.items():
        assert name.isidentifier() and value.dtype == np.float32
        assert np.isfinite(value).all()


def test_in_batches_as_at_once(fitted):
    """Of which one has no correctly classified example; in any order."""
    score, statistics, outputs = fitted
    labels, _ = outputs_of_blobs()
    context = Context(tuple(map(str, range(NUM_CLASSES))))
    fitting = Fitting([score], context)
    rest = np.random.default_rng(1).permutation(ROWS)
    wrong = np.arange(ROWS)[WRONG]
    for rows in (wrong, *np.split(np.setdiff1d(rest, wrong), [3, 40])):
        batch = {name: value[rows] for name, value in outputs.items()}
        inputs = outputs[score.READS[0]][rows]
        fitting.add(KnownBatch(labels[rows], inputs, batch, NUM_CLASSES))
    found = fitting.finish()
    assert fitting.problems == {}
    assert list(found) == [score.name] * score.IS_FITTED_TO_DATA
    expected = score(*score.arguments_of(outputs), **statistics)
    values = score(*score.arguments_of(outputs), **found.get(score.name, {}))
    np.testing.assert_allclose(values, expected, rtol=2e-4, atol=1e-4)


def test_one_float32_for_each_row_alone_as_in_a_batch(fitted):
    score = fitted[0]
    function, arguments = function_of(fitted)
    values = np.asarray(function(*arguments))
    assert values.shape == (ROWS,) and values.dtype == np.float32
    assert np.isfinite(values).all()
    if score.IS_NON_NEGATIVE:
        assert values.min() >= 0
    for row in (0, 7):
        one = np.asarray(function(*(a[row : row + 1] for a in arguments)))
        np.testing.assert_allclose(one, values[row], rtol=1e-5, atol=1e-5)


def test_half_precision_is_computed_in_full(fitted):
    function, arguments = function_of(fitted)
    for dtype in ("float16", "bfloat16"):
        half = [keras.ops.cast(a, dtype) for a in arguments]
        rounded = [keras.ops.cast(a, "float32") for a in half]
        values = function(*half)
        assert keras.backend.standardize_dtype(values.dtype) == "float32"
        np.testing.assert_allclose(
            np.asarray(values),
            np.asarray(function(*rounded)),
            rtol=1e-5,
            atol=1e-5,
        )


def test_config(fitted):
    """A copy has the same settings, and the same values."""
    score, statistics, outputs = fitted
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(score)
    )
    assert type(copy) is type(score) and copy.name == score.name
    assert copy.get_config() == score.get_config()
    arguments = score.arguments_of(outputs)
    np.testing.assert_array_equal(
        copy(*arguments, **statistics), score(*arguments, **statistics)
    )


def test_the_predicted_class_is_one_of_the_known(fitted):
    score, statistics, outputs = fitted
    predicted = np.asarray(score.predicted_class(outputs, **statistics))
    assert predicted.dtype == np.int32
    assert np.mean(predicted == np.arange(ROWS) % NUM_CLASSES) > 0.95


def test_fit_says_what_is_missing(fitted):
    score, _, outputs = fitted
    missing = score.READS[0]
    others = {k: v for k, v in outputs.items() if k != missing}
    with pytest.raises(ValueError, match=missing):
        score.fit(np.arange(ROWS) % NUM_CLASSES, **others)


def test_through_a_classifier(fitted, tmp_path):
    """Fitted, calibrated, saved, loaded; on TensorFlow exported."""
    labels, outputs = outputs_of_blobs()
    x, half = outputs["features"], ROWS // 2
    inputs = keras.Input([WIDTH])
    dense = keras.layers.Dense(NUM_CLASSES)
    outputs = {"logits": dense(inputs), "latents": inputs[:, 2:]}
    classifier = keras.Model(inputs, outputs)
    kernel = 3.0 * np.eye(WIDTH, NUM_CLASSES)
    dense.set_weights([kernel, np.zeros(NUM_CLASSES)])
    # Nearest neighbours find themselves, so others calibrate.
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (x[:half], labels[:half]),
        class_names=["a", "b", "c"],
        score=fitted[0],
    )
    x = x[half:]
    threshold = model.calibrate(x, true_positive_rate=0.9)
    expected = model.predict_open_set(x)
    assert np.sum(~expected.is_unknown) == np.ceil(0.9 * (half + 1))
    model.save(tmp_path / "model.keras")
    loaded = cac_tf.load_model(tmp_path / "model.keras")
    assert loaded.threshold == threshold
    np.testing.assert_array_equal(
        loaded.predict_open_set(x).unknown_score, expected.unknown_score
    )
    if execution.BACKEND != "tensorflow":
        return
    import tensorflow as tf

    # As it is served, without writing it: tests/export does.
    graphs, _ = graphs_and_description(model)
    out = graphs["serving_default"](images=tf.constant(x))
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-5
    )
