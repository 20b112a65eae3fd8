# SPDX-License-Identifier: Apache-2.0
"""Each way in which a model is kept gives its decisions back, or refuses."""

import copy
import functools
import os
import pickle
import resource
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import ops as fused_ops
from cac_tf import scores
from cac_tf.scores.energy import Energy
from tests.conftest import ROOT
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND

ON_TENSORFLOW = BACKEND == "tensorflow"
tensorflow_only = pytest.mark.skipif(
    not ON_TENSORFLOW, reason="a file of TensorFlow"
)
# Names of scores, and whether there is a threshold for each class.
# (What a score keeps, files of it hold: classifier_scores_test.py.)
KINDS = (("gamma", True), ("vim", True), ("knn", False))
each_kind = pytest.mark.parametrize(
    "kind",
    KINDS if ON_TENSORFLOW else KINDS[:2],
    ids=lambda kind: "-".join([kind[0], *["by_class"] * kind[1]]),
)


@functools.cache
def trained():
    """A classifier with features of a width of its own, inputs, labels."""
    keras.utils.set_random_seed(0)
    x, y = blobs(np.random.default_rng(0))
    noise = np.random.default_rng(1).standard_normal(x.shape)
    x = np.float32(x + 0.5 * noise)
    classifier = small_classifier(
        network=keras.Sequential(
            [
                keras.Input([5]),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dense(3),
            ]
        )
    )
    classifier.fit(x, y, epochs=10, verbose=0)
    return classifier, x, y


@functools.cache
def kept(kind):
    """A calibrated model, inputs known and unknown, and its decisions."""
    classifier, x, y = trained()
    name, by_class = kind
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x[:120], y[:120]), class_names=list("abc"), score=name
    )
    model.calibrate(x[120:], true_positive_rate=0.9, by_class=by_class)
    assert np.ndim(model.threshold) == by_class
    x = np.concatenate([x, 4 * np.random.default_rng(2).normal(size=(60, 5))])
    x = np.float32(x)
    expected = model.predict_open_set(x)
    assert 0.05 < expected.is_unknown.mean() < 0.6
    return model, x, expected


def assert_same_decisions(model, kind):
    original, x, expected = kept(kind)
    np.testing.assert_array_equal(model.threshold, original.threshold)
    assert model.class_names == original.class_names
    found = model.predict_open_set(x)
    np.testing.assert_array_equal(found.label, expected.label)
    np.testing.assert_allclose(
        found.unknown_score, expected.unknown_score, rtol=1e-6, atol=1e-7
    )


def emptied(model):
    """One of the same config, whose weights are not set."""
    fresh = keras.models.clone_model(model)
    assert fresh.threshold is None
    return fresh


@each_kind
def test_keras_file_pickle_and_copy(kind, tmp_path):
    model, *_ = kept(kind)
    path = tmp_path / "model.keras"
    model.save(path)
    assert_same_decisions(cac_tf.load_model(path), kind)
    assert_same_decisions(keras.saving.load_model(path), kind)
    assert_same_decisions(pickle.loads(pickle.dumps(model)), kind)
    assert_same_decisions(copy.deepcopy(model), kind)


@each_kind
def test_a_clone_answers_nothing_before_it_has_weights(kind, tmp_path):
    model, x, _ = kept(kind)
    clone = emptied(model)
    with pytest.raises(ValueError, match="no threshold.*calibrate"):
        clone.predict_open_set(x)
    with pytest.raises(ValueError, match="must be finite"):
        clone.predict_scores(x)
    model.save_weights(tmp_path / "model.weights.h5")
    clone.load_weights(tmp_path / "model.weights.h5")
    assert_same_decisions(clone, kind)
    again = emptied(model)
    again.set_weights(model.get_weights())
    assert_same_decisions(again, kind)


@tensorflow_only
@each_kind
def test_checkpoint_of_tensorflow(kind, tmp_path):
    import tensorflow as tf

    model, *_ = kept(kind)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    fresh = emptied(model)
    status = tf.train.Checkpoint(model=fresh).restore(path)
    status.assert_consumed()
    assert_same_decisions(fresh, kind)


@tensorflow_only
@each_kind
def test_saved_model_of_tensorflow(kind, tmp_path):
    """Written by TensorFlow itself, not by `export`."""
    import tensorflow as tf

    model, x, expected = kept(kind)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures
    (name,) = serve["serving_default"].structured_input_signature[1]
    out = serve["serving_default"](**{name: tf.constant(x)})
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-5, atol=1e-6
    )


@each_kind
def test_part_of_another_model(kind, tmp_path):
    model, x, expected = kept(kind)
    inputs = keras.Input([5], name="numbers")
    outer = keras.Model(inputs, model(keras.ops.multiply(inputs, 2.0)))
    outer.save(tmp_path / "outer.keras")
    again = keras.saving.load_model(tmp_path / "outer.keras")
    out = again.predict(x / 2, verbose=0)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-4
    )
    inner = again.get_layer(model.name)
    assert_same_decisions(inner, kind)


# ---- what is refused ------------------------------------------------------


def test_weights_of_another_score_are_refused(tmp_path):
    """Their threshold is one of that score."""
    model, x, _ = kept(("vim", True))
    _, x, y = trained()
    model.save_weights(tmp_path / "vim.weights.h5")
    for other in ("gamma", "knn", scores.ViM(principal_dimensions=2)):
        with pytest.raises(
            ValueError,
            match=r"belong to a model with the score ViM\(.*this model has",
        ):
            model.with_score(other, (x, y)).load_weights(
                tmp_path / "vim.weights.h5"
            )


def test_a_bank_of_another_size_is_refused(tmp_path):
    model, *_ = kept(("knn", False))
    _, x, y = trained()
    model.save_weights(tmp_path / "knn.weights.h5")
    other = model.with_score("knn", (x[:60], y[:60]))
    with pytest.raises(ValueError, match="(?i)shape"):
        other.load_weights(tmp_path / "knn.weights.h5")


def test_statistics_and_centers_outlive_a_prediction():
    """JAX gives the memory of weights away."""
    model, x, _ = kept(("vim", True))
    statistics, centers = model.statistics, model.centers
    model.predict(x, verbose=0)
    model.predict_scores(x)
    np.testing.assert_array_equal(model.centers, centers)
    for name, value in model.statistics.items():
        np.testing.assert_array_equal(statistics[name], value)


def test_statistics_of_another_score_are_refused():
    model, *_ = kept(("vim", True))
    with pytest.raises(ValueError, match="not the statistics of.*'knn'"):
        model.with_score("knn", statistics=model.statistics)
    with pytest.raises(
        ValueError, match="'vim' has not been fitted: from_class"
    ):
        model.with_score("vim")
    broken = {k: np.asarray(v) * np.nan for k, v in model.statistics.items()}
    with pytest.raises(ValueError, match="score_.* must be finite"):
        model.with_score("vim", statistics=broken)
    again = model.with_score("vim", statistics=model.statistics)
    _, x, expected = kept(("vim", True))
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score, expected.unknown_score
    )


def test_names_of_files(tmp_path):
    model, *_ = kept(("gamma", False))
    for name in ("model.h5", "model"):
        with pytest.raises(ValueError, match=r"must end in \.keras; got.*expo"):
            model.save(tmp_path / name)
    with pytest.raises(ValueError, match='format must be "tf_saved_model"'):
        model.export(tmp_path / "model", format="onnx")
    assert list(tmp_path.iterdir()) == []


@tensorflow_only
@pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)
def test_an_export_holds_stock_operations_only(tmp_path):
    """One that would not is refused, and leaves nothing behind."""
    import tensorflow as tf

    kept(("gamma", False))[0].export(tmp_path / "stock")

    class Fused(keras.layers.Layer):
        def call(self, logits):
            labels = tf.zeros_like(logits[:, 0], "int32")
            return logits + 0.0 * already_traced(logits, labels)[:, None]

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 3), tf.float32),
            tf.TensorSpec((None,), tf.int32),
        ]
    )
    def fused_loss(logits, labels):
        return cac_tf.losses.cac_loss_from_logits(labels, logits)

    # A tf.function by itself would be traced anew.
    already_traced = fused_loss.get_concrete_function()
    layers = [keras.Input([5]), keras.layers.Dense(3), Fused()]
    model = cac_tf.OpenSetClassifier(
        keras.Sequential(layers), list("abc"), threshold=1.0
    )
    with pytest.raises(RuntimeError, match="CacTf>AnchoredCacLoss, which a"):
        model.export(tmp_path / "fused")
    assert [path.name for path in tmp_path.iterdir()] == ["stock"]


def test_a_full_disk_leaves_the_earlier_file(tmp_path):
    model, *_ = kept(("gamma", False))
    path = tmp_path / "model.keras"
    model.save(path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(OSError):
            model.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.keras"]
    with pytest.raises(FileExistsError):
        model.save(path, overwrite=False)


def test_settings_of_a_score_are_kept(tmp_path):
    model, *_ = kept(("gamma", False))
    _, x, y = trained()
    for rule in (
        scores.OpenMax(tail_size=7, rank=2),
        scores.NNGuide(3, bank_size=60),
        scores.ViM(2),
        Energy(2.5),
    ):
        other = model.with_score(rule, (x, y))
        other.save(tmp_path / "model.keras")
        again = cac_tf.load_model(tmp_path / "model.keras")
        assert again.score.get_config() == rule.get_config()
        np.testing.assert_array_equal(again.centers, model.centers)
        for name, value in other.statistics.items():
            np.testing.assert_array_equal(again.statistics[name], value)


@pytest.mark.slow
@tensorflow_only
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_file_in_another_process(backend, tmp_path):
    """And on the other backend, without custom objects."""
    code = f"""
        from cac_tf import OpenSetClassifier
        import keras, numpy as np
        x = np.load("x.npy")
        for name in {[f"{n}{b:d}" for n, b in KINDS]}:
            model = keras.saving.load_model(name + ".keras")
            out = model.predict_open_set(x)
            np.savez(name, label=out.label, score=out.unknown_score)
    """
    for name, by_class in KINDS:
        model, x, _ = kept((name, by_class))
        model.save(tmp_path / f"{name}{by_class:d}.keras")
    np.save(tmp_path / "x.npy", x)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path},
        check=True,
    )
    for name, by_class in KINDS:
        *_, expected = kept((name, by_class))
        found = np.load(tmp_path / f"{name}{by_class:d}.npz")
        np.testing.assert_array_equal(found["label"], expected.label)
        np.testing.assert_allclose(
            found["score"], expected.unknown_score, rtol=1e-4, atol=1e-5
        )
