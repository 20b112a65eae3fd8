# SPDX-License-Identifier: Apache-2.0
import contextlib
import resource
import subprocess
import sys
import textwrap
import warnings

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import ops as fused_ops
from cac_tf.layers import AnchoredDistance
from cac_tf.models import training_checks
from tests import oracle
from tests.conftest import ROOT
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND


def class_means(logits, labels, num_classes, magnitude=10.0):
    """Section 3.1.2, one class at a time."""
    means = magnitude * np.eye(num_classes)
    for c in range(num_classes):
        chosen = (labels == c) & (logits.argmax(axis=1) == c)
        if chosen.any():
            means[c] = np.float64(logits[chosen]).mean(axis=0)
    return means


def image_classifier(seed=0, size=6, jit_compile="auto"):
    """Convolution, dropout, preprocessing and augmentation."""
    backbone = keras.Sequential(
        [
            keras.Input([size, size, 1]),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2, seed=seed),
            keras.layers.Dense(2, dtype="float32"),
        ]
    )
    model = cac_tf.OpenSetClassifier(
        backbone,
        ["dark", "bright"],
        preprocessing=cac_tf.layers.ImagePreprocessing(size, size, 0.5, 0.25),
        augmentation=cac_tf.layers.AffineAugmentation(0.8, 0.5, 10, seed=seed),
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss=cac_tf.losses.CACLoss(),
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def dark_and_bright(rng, rows=64):
    labels = np.arange(rows) % 2
    images = (
        rng.integers(0, 100, (rows, 8, 8, 1))
        + 150 * labels[:, None, None, None]
    )
    return images.astype("uint8"), labels


def logits_of(model, x, **options):
    return np.asarray(model(x, **options)["logits"])


def test_calls_give_named_outputs(trained_blobs):
    """Logits and features of the backbone, distances and gamma of the head."""
    model, x, _ = trained_blobs
    (dense,) = model.backbone.layers
    kernel, bias = np.float64(dense.kernel), np.float64(dense.bias)
    d = oracle.distances(np.float64(x) @ kernel + bias, model.centers)
    names = ("features", "logits", "distances", "gamma")
    assert sorted(model.names_of_outputs) == sorted(names)
    for outputs in (
        model(x),
        model(x, training=True),
        model.predict(x, verbose=0),
    ):
        assert sorted(outputs) == sorted(names)
        found = {name: np.asarray(value) for name, value in outputs.items()}
        assert {value.dtype.name for value in found.values()} == {"float32"}
        np.testing.assert_allclose(found["features"], x, rtol=1e-6)
        np.testing.assert_allclose(
            found["logits"], np.float64(x) @ kernel + bias, rtol=1e-4, atol=1e-5
        )
        expected = oracle.distances(found["logits"], model.centers)
        assert oracle.relative_error(found["distances"], expected) <= 1e-5
        gamma = oracle.gamma(np.float64(found["distances"]))
        assert oracle.relative_error(found["gamma"], gamma) <= 1e-5
        np.testing.assert_allclose(found["distances"], d, rtol=1e-3)


def test_predict_follows_fit_centers(rng):
    """predict -> fit_centers -> predict: the compiled function keeps up."""
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=10, verbose=0)
    logits = logits_of(model, x)
    before = model.predict(x, verbose=0)["distances"]
    loss_before = model.evaluate(x, y, verbose=0)[0]
    to_anchors = oracle.distances(logits, 10 * np.eye(3))
    np.testing.assert_allclose(before, to_anchors, rtol=1e-4)
    expected = oracle.cac_loss(y, to_anchors).mean()
    assert loss_before == pytest.approx(expected, rel=1e-4)
    counts = model.fit_centers(x, y)
    means = class_means(logits, y, 3)
    np.testing.assert_allclose(model.centers, means, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        counts, np.bincount(y[logits.argmax(axis=1) == y], minlength=3)
    )
    to_means = oracle.distances(logits, means)
    after = model.predict(x, verbose=0)["distances"]
    np.testing.assert_allclose(after, to_means, rtol=1e-4, atol=1e-5)
    expected = oracle.cac_loss(y, to_means).mean()
    assert model.evaluate(x, y, verbose=0)[0] == pytest.approx(
        expected, rel=1e-4
    )


def test_predict_follows_loaded_weights(rng, tmp_path):
    """Class means come with the weights, into what was compiled before."""
    x, y = blobs(rng)
    model, other = small_classifier(), small_classifier()
    model.fit(x, y, epochs=2, verbose=0)
    model.fit_centers(x, y)
    model.save_weights(tmp_path / "model.weights.h5")
    other.fit(x, y, epochs=1, verbose=0)
    other.predict(x, verbose=0)
    other.evaluate(x, y, verbose=0)
    other.predict_scores(x)
    with warnings.catch_warnings():
        # For functions of one's own; those of the model are made anew.
        warnings.filterwarnings("ignore", message="Functions that were compil")
        other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.centers, model.centers)
    np.testing.assert_allclose(
        other.predict(x, verbose=0)["distances"],
        model.predict(x, verbose=0)["distances"],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        other.predict_scores(x).distances,
        model.predict_scores(x).distances,
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        other.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0)
    )
    # And training starts from anchors again.
    other.fit(x, y, epochs=1, verbose=0)
    assert other.distance_head.has_anchors


def test_fit_centers_twice_changes_nothing(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=3, verbose=0)
    model.fit_centers(x, y)
    first = model.centers
    model.fit_centers(x, y, batch_size=7)
    np.testing.assert_allclose(model.centers, first, rtol=1e-6, atol=1e-6)


def test_a_class_without_a_correct_example_keeps_its_anchor(rng):
    x, y = blobs(rng)
    model = small_classifier(names=["cat", "dog", "cow"])
    model.fit(x, y, epochs=10, verbose=0)
    wrong = np.where(y == 1, 2, np.where(y == 2, 1, 0))
    with pytest.warns(UserWarning, match="'dog' keeps its anchor.*none of its"):
        model.fit_centers(x, wrong)
    np.testing.assert_array_equal(model.centers[1], [0.0, 10.0, 0.0])
    assert np.isfinite(model.centers).all()
    with pytest.warns(UserWarning, match="'cow' keeps.*has no example"):
        model.fit_centers(x[y < 2], y[y < 2])


def test_life_of_theta(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=2, verbose=0)
    assert model.threshold is None
    with pytest.raises(ValueError, match="no valid threshold"):
        model.predict_open_set(x)
    theta = model.calibrate(x, true_positive_rate=0.9)  # with anchors
    assert model.threshold == theta
    model.predict_open_set(x)
    model.fit_centers(x, y)
    assert model.threshold is None
    model.calibrate(x, true_positive_rate=0.9)
    assert not model.distance_head.has_anchors
    model.fit(x, y, epochs=1, verbose=0)
    assert model.threshold is None
    assert model.distance_head.has_anchors
    np.testing.assert_array_equal(model.centers, 10 * np.eye(3))


@pytest.mark.parametrize("step", ["fit", "train_on_batch"])
def test_a_first_training_starts_from_nothing_earlier(rng, step):
    """Theta, statistics and class means that a model has before it is built."""
    x, y = blobs(rng)
    score = cac_tf.scores.get("class_z_score")
    score.fit(y, logits=10 * np.eye(3)[y] + rng.standard_normal((len(y), 3)))
    head = cac_tf.layers.AnchoredDistance(3)
    head.assign_class_means(rng.standard_normal((3, 3)))
    model = small_classifier(score=score, head=head)
    model.threshold = 5.0
    assert not model.built
    getattr(model, step)(x, y)
    assert model.threshold is None
    assert not model.score.is_fitted
    np.testing.assert_array_equal(model.centers, 10 * np.eye(3))
    with pytest.raises(ValueError, match="has no statistics yet"):
        model.calibrate(x, true_positive_rate=0.9)


@pytest.mark.parametrize("score", ["gamma", "min_distance"])
def test_decisions_follow_the_equation(rng, score):
    x, y = blobs(rng)
    model = small_classifier(score=score)
    model.fit(x, y, epochs=20, verbose=0)
    model.fit_centers(x, y)
    theta = model.calibrate(x, true_positive_rate=0.8)
    inputs = np.concatenate([x, np.float32(rng.normal(0, 4, (200, 5)))])
    out = model.predict_open_set(inputs, batch_size=37)
    d = oracle.distances(logits_of(model, inputs), model.centers)
    values = oracle.gamma(d) if score == "gamma" else d
    np.testing.assert_allclose(
        out.unknown_score, values.min(axis=1), rtol=1e-3, atol=1e-6
    )
    np.testing.assert_array_equal(out.predicted_class_id, d.argmin(axis=1))
    np.testing.assert_array_equal(out.is_unknown, out.unknown_score > theta)
    np.testing.assert_array_equal(
        out.class_id, np.where(out.is_unknown, -1, out.predicted_class_id)
    )
    names = [*model.class_names, "unknown"]
    assert out.label.tolist() == [names[i] for i in out.class_id]
    assert 0.15 < out.is_unknown[: len(x)].mean() < 0.21
    assert out.is_unknown[len(x) :].mean() > 0.5


@keras.saving.register_keras_serializable(package="CacTfTest")
class Subclassed(keras.Model):
    """A backbone with neither build nor compute_output_shape."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        # The last attribute is not the last operation.
        self.logits = keras.layers.Dense(3)
        self.hidden = keras.layers.Dense(8, activation="tanh")

    def call(self, inputs):
        return self.logits(self.hidden(inputs))

    def get_config(self):
        return {}


def test_a_subclassed_backbone(rng, tmp_path):
    x, y = blobs(rng)
    model = cac_tf.OpenSetClassifier(Subclassed(), ["a", "b", "c"])
    model.compile(keras.optimizers.SGD(0.1), cac_tf.losses.CACLoss())
    model.fit(x, y, epochs=5, verbose=0)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    model.save(tmp_path / "model.keras")
    loaded = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        loaded.predict_open_set(x).gamma,
        model.predict_open_set(x).gamma,
        rtol=1e-5,
    )
    fresh = cac_tf.OpenSetClassifier(Subclassed(), ["a", "b", "c"])
    outputs = fresh.predict(x, verbose=0)
    # Features cannot be seen in a network that is called by its own code.
    assert sorted(outputs) == ["distances", "gamma", "logits"]
    np.testing.assert_allclose(
        outputs["logits"], fresh.backbone.predict(x, verbose=0), rtol=1e-5
    )
    wrong = cac_tf.OpenSetClassifier(Subclassed(), ["a", "b"])
    with pytest.raises(ValueError, match=r"needs logits of shape"):
        wrong.predict_scores(x)


def test_evaluate_gives_loss_and_metrics_in_keras_order(trained_blobs):
    model, x, y = trained_blobs
    loss, accuracy = model.evaluate(x, y, verbose=0)
    named = model.evaluate(x, y, verbose=0, return_dict=True)
    assert (loss, accuracy) == (named["loss"], named["accuracy"])
    d = oracle.distances(logits_of(model, x), model.centers)
    assert loss == pytest.approx(oracle.cac_loss(y, d).mean(), rel=1e-4)
    assert accuracy == (d.argmin(axis=1) == y).mean()


@pytest.mark.parametrize("metrics", [["accuracy"], [["acc"]], ("accuracy",)])
def test_accuracy_in_every_form_is_that_of_the_nearest_center(rng, metrics):
    x, y = blobs(rng)
    model = small_classifier()
    model.compile(
        keras.optimizers.SGD(0.1), cac_tf.losses.CACLoss(), metrics=metrics
    )
    history = model.fit(x, y, epochs=10, verbose=0).history
    (name,) = set(history) - {"loss"}
    assert history[name][-1] > 0.9


def test_train_on_batch_starts_from_anchors_too(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=5, verbose=0)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    model.train_on_batch(x, y.tolist())
    found = []
    for data in ((x.tolist(), y.tolist()), (x, y)):
        model.reset_metrics()
        found.append(model.test_on_batch(*data))
    np.testing.assert_array_equal(*found)
    assert model.threshold is None
    assert model.distance_head.has_anchors
    with pytest.raises(ValueError, match="needs labels"):
        model.train_on_batch(x)


def test_calibration_leaves_out_unknown_validation_data(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=10, verbose=0)
    expected = model.calibrate(x, true_positive_rate=0.9)
    mixed_x = np.concatenate([x, np.float32(rng.normal(0, 5, (90, 5)))])
    mixed_y = np.concatenate([y, np.full(90, -1)])
    theta = model.calibrate((mixed_x, mixed_y), true_positive_rate=0.9)
    assert theta == pytest.approx(expected, rel=1e-5)
    # (Of unknown inputs the labels do not matter.)
    model.calibrate(unknown=(mixed_x, mixed_y + 90), false_positive_rate=0.1)
    theta = model.threshold
    for labels, message in (
        (np.eye(3)[y], "One-hot labels are not taken"),
        (np.where(y == 2, 99, y), "Label 99 at position 2 is out of range"),
        (y + 0.5, "Label 0.5 at position 0 is no whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            model.calibrate((x, labels), true_positive_rate=0.9)
        assert model.threshold == theta


def test_calibration_by_false_positive_rate(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=20, verbose=0)
    unknown = np.float32(rng.normal(0, 4, (300, 5)))
    model.calibrate(unknown=unknown, false_positive_rate=0.1)
    kept = ~model.predict_open_set(unknown).is_unknown
    assert 0.09 <= kept.mean() < 0.1


def test_datasets_of_every_kind_give_the_same(rng):
    x, y = blobs(rng, rows=60)
    model = small_classifier()
    model.fit(x, y, epochs=3, verbose=0)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            rows = slice(10 * index, 10 * index + 10)
            return x[rows], y[rows]

    def generator():
        for i in range(6):
            yield Batches()[i]

    sources = [lambda: (x, y), lambda: Batches(workers=0), generator]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        sources.append(
            lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
        )
    results = []
    for source in sources:
        model.fit_centers(source())
        theta = model.calibrate(source(), true_positive_rate=0.9)
        results.append((model.centers, theta))
        assert len(model.predict_open_set(source()).label) == 60
    for centers, theta in results:
        np.testing.assert_allclose(centers, results[0][0], rtol=1e-6)
        assert theta == pytest.approx(results[0][1], rel=1e-5)


def test_images_from_pixels_to_decisions_and_back_from_disk(rng, tmp_path):
    images, labels = dark_and_bright(rng)
    model = image_classifier()
    history = model.fit(
        images,
        labels,
        epochs=15,
        verbose=0,
        validation_data=(images, labels),
    ).history
    assert history["val_accuracy"][-1] == 1.0
    model.fit_centers(images, labels)
    model.calibrate(images, true_positive_rate=0.9)
    model.save(tmp_path / "model.keras")
    before = model.predict_open_set(images)
    loaded = cac_tf.load_model(tmp_path / "model.keras")
    after = loaded.predict_open_set(images)
    assert loaded.class_names == ("dark", "bright")
    assert loaded.threshold == model.threshold
    assert not loaded.distance_head.has_anchors
    np.testing.assert_array_equal(loaded.centers, model.centers)
    np.testing.assert_array_equal(after.class_id, before.class_id)
    np.testing.assert_allclose(after.gamma, before.gamma, rtol=1e-5)
    # It is compiled and can be trained on.
    loaded.fit(images, labels, epochs=1, verbose=0)


def test_load_without_custom_objects_in_a_new_process(rng, tmp_path):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=2, verbose=0)
    model.calibrate(x, true_positive_rate=0.9)
    path = tmp_path / "model.keras"
    model.save(path)
    np.save(tmp_path / "x.npy", x)
    code = f"""
        import cac_tf, keras, numpy as np
        model = keras.saving.load_model({str(path)!r})
        x = np.load({str(tmp_path / "x.npy")!r})
        np.save({str(tmp_path / "out.npy")!r}, model.predict_open_set(x).gamma)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=True
    )
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"),
        model.predict_open_set(x).gamma,
        rtol=1e-5,
    )


def test_a_training_step_under_xla_equals_one_without(rng):
    """Without augmentation and dropout: XLA draws other random numbers."""
    x, y = blobs(rng)
    results = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(1)
        model = small_classifier()
        model.compile(
            optimizer=keras.optimizers.SGD(0.1),
            loss=cac_tf.losses.CACLoss(),
            jit_compile=jit_compile,
        )
        history = model.fit(x, y, epochs=3, shuffle=False, verbose=0).history
        outputs = model.predict(x, verbose=0)
        results.append((history["loss"], outputs["distances"]))
    np.testing.assert_allclose(*(r[0] for r in results), rtol=1e-5)
    np.testing.assert_allclose(*(r[1] for r in results), rtol=1e-4)


def test_trains_compiled_with_augmentation_and_preprocessing(rng):
    images, labels = dark_and_bright(rng)
    model = image_classifier(size=8, jit_compile=True)
    history = model.fit(images, labels, epochs=15, verbose=0).history
    assert history["accuracy"][-1] > 0.9


def test_augmentation_acts_in_training_only_before_normalization(rng):
    images, _ = dark_and_bright(rng, rows=4)
    seen = []

    class Recorder(keras.layers.Layer):
        def call(self, x, training=False):
            seen.append((np.asarray(x), training))
            return x

        def compute_output_shape(self, input_shape):
            return input_shape

    model = cac_tf.OpenSetClassifier(
        keras.Sequential(
            [
                keras.Input([8, 8, 1]),
                keras.layers.Flatten(),
                keras.layers.Dense(2),
            ]
        ),
        ["dark", "bright"],
        preprocessing=cac_tf.layers.ImagePreprocessing(8, 8, 0.5, 0.25),
        augmentation=Recorder(),
    )
    model(images)
    model(images, training=True)
    for (unit, training), expected in zip(seen, (False, True), strict=True):
        assert training is expected
        np.testing.assert_allclose(unit, images / np.float32(255), rtol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(rng, policy):
    images, labels = dark_and_bright(rng)
    keras.config.set_dtype_policy(policy)
    try:
        model = image_classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (policy == "mixed_float16")
    model.fit(images, labels, epochs=15, verbose=0)
    model.fit_centers(images, labels)
    scores = model.predict_scores(images)
    assert scores.distances.dtype == scores.gamma.dtype == np.float32
    # The head's arithmetic is float32: it equals the oracle on the logits.
    d = oracle.distances(scores.logits, model.centers)
    assert oracle.relative_error(scores.distances, d) <= 1e-6
    assert (scores.predicted_class_id == labels).mean() > 0.95


def test_the_same_seed_gives_the_same_weights(rng):
    images, labels = dark_and_bright(rng)
    weights = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        model = image_classifier(seed=7)
        model.fit(images, labels, epochs=3, verbose=0)
        weights.append([np.asarray(w) for w in model.weights])
    for one, two in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, two)


# ---- bad input ------------------------------------------------------------


def backbone(*layers, width=3):
    return keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(width), *layers]
    )


@pytest.mark.parametrize(
    "last",
    [
        keras.layers.Softmax,
        lambda: keras.layers.Activation("softmax"),
        lambda: keras.layers.Activation("tanh"),
        lambda: keras.layers.Dense(3, activation="sigmoid"),
        lambda: keras.layers.ReLU(max_value=6),
        lambda: keras.Sequential([keras.Input([3]), keras.layers.Softmax()]),
    ],
)
def test_a_bounded_backbone_is_refused(last):
    layers = [last(), keras.layers.Activation("linear")]
    for ending in (layers[:1], layers):
        with pytest.raises(ValueError, match="never reach an anchor"):
            cac_tf.OpenSetClassifier(backbone(*ending), ["a", "b", "c"])


def test_a_functional_softmax_is_refused():
    inputs = keras.Input([5])
    logits = keras.layers.Dense(3)(inputs)
    model = keras.Model(inputs, keras.ops.softmax(logits))
    with pytest.raises(ValueError, match="softmax.*never reach an anchor"):
        cac_tf.OpenSetClassifier(model, ["a", "b", "c"])
    cac_tf.OpenSetClassifier(keras.Model(inputs, logits), ["a", "b", "c"])


def test_a_half_precision_last_layer_is_warned_about():
    with pytest.warns(UserWarning, match="computes in bfloat16"):
        cac_tf.OpenSetClassifier(
            keras.Sequential(
                [
                    keras.Input([5]),
                    keras.layers.Dense(2, dtype="mixed_bfloat16"),
                ]
            ),
            ["a", "b"],
        )


@pytest.mark.parametrize(
    "names, message",
    [
        (["a"], "at least two"),
        ([], "at least two"),
        (["a", "b", "a"], "these do not: a"),
        (["a", "b", "unknown"], "cannot be called 'unknown'"),
        (["a", "b", ""], "not empty"),
        (["a", "b", 3], "must be texts"),
        ("abc", "must be a list"),
        (["a", "b"], r"must be \(batch, 2\)"),
    ],
)
def test_bad_class_names(names, message):
    with pytest.raises(ValueError, match=message):
        cac_tf.OpenSetClassifier(backbone(), names)


def test_unknown_score_name():
    with pytest.raises(
        ValueError,
        match="no score 'maximum'.* There are: .*gamma, gen, knn, .*vim",
    ):
        small_classifier(score="maximum")
    with pytest.raises(ValueError, match="did you mean 'max_logit'"):
        small_classifier(score="max_logits")


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1, 2, 3], "Label 3 at position 3 is out of range: allowed"),
        ([0, 1, 2, -1], "Label -1 at position 3 is out of range"),
        ([0, 1, 2, 0.5], "Label 0.5 at position 3 is no whole number"),
        ([0, 1, 2, np.nan], "is no whole number"),
        (np.eye(3)[[0, 1, 2, 0]], "One-hot"),
        (["a", "b", "c", "a"], "whole numbers"),
        ([0, 1, 0, 1], "no training example: class 2"),
    ],
)
def test_bad_labels(rng, labels, message):
    model = small_classifier()
    x = np.float32(rng.random((4, 5)))
    with pytest.raises(ValueError, match=message):
        model.fit(x, np.asarray(labels), verbose=0)


def test_bad_labels_change_nothing(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=1, verbose=0)
    model.fit_centers(x, y)
    theta = model.calibrate(x, true_positive_rate=0.9)
    weights = [np.asarray(w) for w in model.weights]
    with pytest.raises(ValueError, match="Label 7"):
        model.fit(x, np.where(y == 0, 7, y), verbose=0)
    with pytest.raises(ValueError, match="Label 7"):
        model.fit_centers(x, np.where(y == 0, 7, y))
    assert model.threshold == theta
    for before, after in zip(weights, model.weights, strict=True):
        np.testing.assert_array_equal(before, np.asarray(after))


def bad_batches(x, y):
    """Three batches of ten; the third has one bad label."""
    y = y.copy()
    y[25] = 9
    return [(x[i : i + 10], y[i : i + 10]) for i in (0, 10, 20)]


def test_bad_labels_in_data_sets(rng):
    x, y = blobs(rng, rows=30)
    batches = bad_batches(x, y)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return batches[index]

    sources = [iter(batches), Batches(workers=0)]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        xs, ys = (np.concatenate(part) for part in zip(*batches, strict=True))
        sources.append(tf.data.Dataset.from_tensor_slices((xs, ys)).batch(10))
    for source in sources:
        model = small_classifier()
        with pytest.raises(
            ValueError, match=r"Label 9 at batch 2, position 5 is out of range"
        ):
            model.fit(source, epochs=1, verbose=0)


def test_a_class_absent_from_a_data_set_is_warned_about(rng):
    x, y = blobs(rng)
    x, y = x[y != 1], y[y != 1]

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return x[index::4], y[index::4]

    with pytest.warns(UserWarning, match="no training example: class 1"):
        small_classifier().fit(Batches(workers=0), epochs=1, verbose=0)


def test_training_stops_when_the_loss_becomes_nan(rng):
    """Data that cannot be checked on the way in: the loss is NaN, and stops."""
    x, y = blobs(rng, rows=30)

    class Loader:
        """Neither array nor any kind of data set that can be wrapped."""

        def __iter__(self):
            return iter(bad_batches(x, y))

    model = small_classifier()
    model.build((None, 5))
    data = Loader()
    checked, counts, _ = training_checks.checked_training_data(
        model, data, None
    )
    assert checked is data
    assert counts is None
    *_, stop = training_checks.with_own_callbacks(
        None, None, inputs_are_checked=False, metrics=()
    )
    stop.set_model(model)
    stop.on_epoch_begin(0)
    losses = [keras.Model.train_on_batch(model, *batch) for batch in data]
    stop.on_train_batch_end(0, {"loss": losses[0][0]})
    with pytest.raises(FloatingPointError, match="a label is no whole number"):
        stop.on_train_batch_end(2, {"loss": losses[2][0]})


def test_a_list_of_callbacks_of_keras(rng):
    """As `fit` of Keras takes it; the check of the loss is added to it."""
    x, y = blobs(rng)
    seen = []
    log = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(logs["loss"])
    )
    model = small_classifier()
    callbacks = keras.callbacks.CallbackList([log], model=model)
    history = model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks)
    assert seen == history.history["loss"]
    assert callbacks.callbacks == [log]
    model.compile(keras.optimizers.SGD(1e30), cac_tf.losses.CACLoss())
    with pytest.raises(FloatingPointError, match=f"loss of {model.name} becam"):
        model.fit(x, y, epochs=9, verbose=0, callbacks=callbacks)


@pytest.mark.parametrize(
    ("monitor", "larger_is_better"),
    [("val_accuracy", True), ("accuracy", True), ("val_anchor_loss", False)],
)
def test_callbacks_know_which_values_are_better(
    rng, tmp_path, monitor, larger_is_better
):
    """By themselves, of the metrics of a classifier."""
    x, y = blobs(rng)
    model = small_classifier()
    model.compile(
        keras.optimizers.SGD(0.01),
        cac_tf.losses.CACLoss(),
        metrics=["accuracy", cac_tf.metrics.AnchorLoss()],
    )
    keep = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "best.keras"), monitor=monitor, save_best_only=True
    )
    callbacks = [
        keep,
        keras.callbacks.EarlyStopping(monitor=monitor),
        keras.callbacks.ReduceLROnPlateau(monitor=monitor),
    ]
    history = model.fit(
        x, y, epochs=4, verbose=0, validation_data=(x, y), callbacks=callbacks
    ).history[monitor]
    best = max(history) if larger_is_better else min(history)
    assert keep.best == best
    assert (tmp_path / "best.keras").exists()
    assert cac_tf.load_model(tmp_path / "best.keras").class_names


@pytest.mark.parametrize("problem", ["not compiled", "lengths", "validation"])
def test_a_training_that_is_refused_changes_nothing(rng, tmp_path, problem):
    x, y = blobs(rng)
    model = small_classifier(score="mahalanobis")
    model.fit(x, y, epochs=5, verbose=0)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    before, theta = model.predict_open_set(x), model.threshold
    arguments = {"x": x, "y": y, "verbose": 0}
    message = "237 labels for 240"
    if problem == "not compiled":
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras", compile=False)
        message = r"compile\(\)"
    elif problem == "lengths":
        arguments["y"] = y[:-3]
    else:
        arguments["validation_data"] = (x, y[:-3])
    with pytest.raises(ValueError, match=message):
        model.fit(**arguments)
    if problem != "validation":
        with pytest.raises(ValueError, match=message):
            model.train_on_batch(x, arguments["y"])
    after = model.predict_open_set(x)
    for name in ("class_id", "unknown_score", "distances"):
        np.testing.assert_allclose(
            getattr(after, name), getattr(before, name), rtol=1e-5
        )
    assert model.threshold == theta


def test_unknown_validation_rows_whose_outputs_overflow(rng):
    """They do not count, and the streamed AUROC takes them for unknown."""
    x, y = blobs(rng)
    model = small_classifier()
    model.compile(
        "sgd",
        cac_tf.losses.CACLoss(),
        metrics=["accuracy", cac_tf.metrics.OpenSetAUROC()],
    )
    rows = np.concatenate([x[:30], np.float32([[3e38, -3e38, 3e38, 1, 1]])])
    labels = np.append(y[:30], -1)
    expected = model.evaluate(x[:30], y[:30], verbose=0, return_dict=True)
    actual = model.evaluate(rows, labels, verbose=0, return_dict=True)
    assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert actual["accuracy"] == expected["accuracy"]
    assert actual["auroc"] > 0.999


@pytest.mark.parametrize("is_stock", [False, True])
def test_a_head_in_double_precision_is_trained(rng, is_stock):
    x, y = blobs(rng)
    model = small_classifier(head=AnchoredDistance(3, dtype="float64"))
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        model.fit(x, y, epochs=5, verbose=0)
    assert np.mean(model.predict_scores(x).predicted_class_id == y) > 0.95


def test_lists_of_rows_and_of_batches(rng):
    """A row may be a tuple; a batch is a tuple that begins with an array."""
    x, y = blobs(rng)
    model = small_classifier()
    model.fit([tuple(row) for row in x], y.tolist(), epochs=1, verbose=0)
    batches = [(x[i : i + 80], y[i : i + 80]) for i in (0, 80, 160)]
    model.fit(batches, epochs=20, verbose=0)
    expected = model.fit_centers(x, y)
    centers = model.centers.copy()
    np.testing.assert_array_equal(model.fit_centers(batches), expected)
    np.testing.assert_allclose(model.centers, centers, rtol=1e-5)
    scores = model.predict_scores(x)
    for given in ([tuple(row) for row in x], x.tolist(), batches):
        actual = model.predict_scores(given)
        np.testing.assert_allclose(actual.distances, scores.distances, 1e-5)
    losses = [
        model.evaluate(*given, verbose=0, return_dict=True)["loss"]
        for given in ((x, y), (x.tolist(), y.tolist()), (batches,))
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
    batches[1] = (x[80:160], np.full(80, 9))
    with pytest.raises(ValueError, match="Label 9 at batch 1, position 0"):
        model.fit(batches, verbose=0)


def test_what_was_compiled_is_forgotten_with_compile(rng):
    """As of Keras' own functions: a layer may have been changed in place."""
    x, _ = blobs(rng)
    normalize = keras.layers.Normalization()
    normalize.adapt(x)
    model = small_classifier(
        backbone=keras.Sequential(
            [keras.Input([5]), normalize, keras.layers.Dense(3)]
        )
    )
    before = model.predict_scores(x).logits
    normalize.adapt(7 * x + 3)
    model.compile("sgd", cac_tf.losses.CACLoss())
    after = model.predict_scores(x).logits
    assert np.abs(after - before).max() > 0.1
    np.testing.assert_allclose(after, np.asarray(model(x)["logits"]), rtol=1e-4)


class AddsNoise(keras.layers.Layer):
    """An augmentation whose call has no argument `training`."""

    def call(self, images):
        return images + 100.0


def test_augmentation_that_is_not_told_whether_it_trains(rng):
    x, y = blobs(rng)
    plain, augmented = (
        small_classifier(augmentation=layer) for layer in (None, AddsNoise())
    )
    for model in (plain, augmented):
        model.build((None, 5))
    augmented.set_weights(plain.get_weights())
    np.testing.assert_array_equal(
        augmented.predict_scores(x).logits, plain.predict_scores(x).logits
    )
    losses = [
        model.fit(x, y, verbose=0, shuffle=False).history["loss"][0]
        for model in (plain, augmented)
    ]
    assert losses[1] > 2 * losses[0]


class TimesTwo(keras.Model):
    """A functional model with a `call` of its own."""

    def __init__(self):
        inputs = keras.Input([5])
        super().__init__(inputs, keras.layers.Dense(3)(inputs))

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training=training)


def test_a_functional_model_with_a_call_of_its_own(rng):
    x, _ = blobs(rng)
    backbone = TimesTwo()
    model = small_classifier(backbone=backbone)
    np.testing.assert_allclose(
        model.predict_scores(x).logits, np.asarray(backbone(x)), rtol=1e-5
    )


def test_the_loss_of_batches_with_negatives_is_a_mean_over_all(rng):
    """Whatever batch the negatives are in."""
    x, y = blobs(rng, rows=64)
    y[:32] = -1
    model = small_classifier()
    found = []
    for size in (64, 32):
        model.compile(
            keras.optimizers.SGD(0.0), cac_tf.losses.EntropicOpenSetLoss()
        )
        history = model.fit(x, y, batch_size=size, shuffle=False, verbose=0)
        found += history.history["loss"]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_a_list_of_labels_is_evaluated(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=2, verbose=0)
    found = [model.evaluate(x, labels, verbose=0) for labels in (y, y.tolist())]
    assert found[0] == found[1]


def test_a_list_of_batches_is_predicted(rng):
    x, y = blobs(rng)
    model = small_classifier()
    batches = [(x[:100], y[:100]), (x[100:], y[100:])]
    np.testing.assert_allclose(
        model.predict_scores(batches).logits,
        model.predict_scores(x).logits,
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_layer_of_several_outputs_has_no_features(rng):
    inputs = keras.Input([4, 2])
    outputs, *_ = keras.layers.LSTM(3, return_state=True, name="lstm")(inputs)
    backbone = keras.Model(inputs, keras.layers.Dense(3)(outputs))
    model = small_classifier(backbone=backbone, features_layer="lstm")
    with pytest.raises(ValueError, match="'lstm' has 3 outputs"):
        model.build((None, 4, 2))


def test_lists_as_arrays(rng):
    """For training and for validation alike."""
    x, y = blobs(rng)
    losses = []
    for given in ((x, y), (x.tolist(), y.tolist())):
        keras.utils.set_random_seed(0)
        model = small_classifier()
        history = model.fit(*given, validation_data=given, verbose=0).history
        losses.append((history["loss"], history["val_loss"]))
    assert losses[0] == losses[1]

    class Whole(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return x, y

    for data in ((Whole(workers=0), None), Whole(workers=0)):
        history = model.fit(x, y, validation_data=data, verbose=0).history
        assert np.isfinite(history["val_loss"]).all()
    for data in ((x,), [x]):
        with pytest.raises(ValueError, match="on arrays needs labels"):
            model.fit(x, y, validation_data=data, verbose=0)


def test_divergence_is_named(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.compile(
        optimizer=keras.optimizers.SGD(1e30), loss=cac_tf.losses.CACLoss()
    )
    with pytest.raises(FloatingPointError, match="lower learning rate"):
        model.fit(x, y, epochs=20, verbose=0)


def test_nan_inputs_are_named(rng, trained_blobs):
    x, y = blobs(rng)
    x[130, 2] = np.nan
    with pytest.raises(ValueError, match="Images must be finite.*position 130"):
        small_classifier().fit(x, y, verbose=0)
    model = trained_blobs[0]
    with pytest.raises(
        ValueError, match="batch starting at 128, position 2 holds NaN"
    ):
        model.predict_open_set(x, batch_size=128)
    with pytest.raises(ValueError, match="position 0 holds NaN"):
        model.train_on_batch(x[130:132], y[130:132])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3e38, "Logits must be finite.*position 3"),
        # Logits of 1e20 are finite, their squares are not.
        (1e20, "Distances must be.*position 3"),
    ],
)
def test_outputs_that_are_infinite_are_named(trained_blobs, value, message):
    model, x, _ = trained_blobs
    x = x.copy()
    x[3] = value
    with pytest.raises(ValueError, match=message):
        model.predict_open_set(x)


def test_inputs_of_another_shape_are_refused(rng):
    images, labels = dark_and_bright(rng)
    model = image_classifier()
    model.fit(images, labels, epochs=1, verbose=0)
    rgb = np.repeat(images, 3, axis=-1)
    with pytest.raises(ValueError, match=r"\(8, 8, 1\); got \(8, 8, 3\)"):
        model.predict_scores(rgb)
    with pytest.raises(ValueError, match=r"got \(8, 8, 3\)"):
        model.fit(rgb, labels, verbose=0)
    # Another size is resized.
    assert len(model.predict_scores(images[:, :7]).logits) == len(images)


def test_batches_that_are_no_pairs(rng):
    x, y = blobs(rng)
    model = small_classifier()
    sources = [iter([x[:10]]), iter([({"image": x[:10]}, y[:10])])]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        sources.append(tf.data.Dataset.from_tensor_slices(x).batch(10))
    for source in sources:
        with pytest.raises(ValueError, match=r"must be \(inputs, labels\)"):
            model.fit(source, verbose=0)


def test_nothing_to_predict(trained_blobs):
    with pytest.raises(ValueError, match="no inputs"):
        trained_blobs[0].predict_open_set(np.zeros((0, 5), "float32"))


def test_bad_calibration(rng):
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=1, verbose=0)
    for arguments in (
        {},
        {"true_positive_rate": 0.9, "false_positive_rate": 0.1},
    ):
        with pytest.raises(ValueError, match="exactly one"):
            model.calibrate(x, unknown=x, **arguments)
    for rate in (0.0, 1.0, -1, np.nan):
        with pytest.raises(ValueError, match=r"must be in \(0, 1\)"):
            model.calibrate(x, true_positive_rate=rate)
    with pytest.raises(ValueError, match="at least one known"):
        model.calibrate(true_positive_rate=0.9)
    with pytest.raises(ValueError, match="at least one known"):
        model.calibrate(x[:0], true_positive_rate=0.9)
    with pytest.raises(ValueError, match="at least one unknown"):
        model.calibrate(x, false_positive_rate=0.1)
    assert model.threshold is None


def test_fit_without_labels(rng):
    x, _ = blobs(rng)
    with pytest.raises(ValueError, match="needs labels"):
        small_classifier().fit(x)
    model = small_classifier()
    model.build((None, 5))
    with pytest.raises(ValueError, match="needs labels"):
        model.fit_centers(x)
    with pytest.raises(ValueError, match="at least one example"):
        model.fit_centers(x[:0], np.zeros(0, int))


def test_load_model_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file"):
        cac_tf.load_model(tmp_path / "none.keras")
    backbone().save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="holds a Sequential"):
        cac_tf.load_model(tmp_path / "other.keras")


def test_a_full_disk_leaves_the_earlier_file(trained_blobs, tmp_path):
    """Writes fail behind 20 kB; the file of the first save stays valid."""
    model, x, _ = trained_blobs
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
