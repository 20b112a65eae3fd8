# SPDX-License-Identifier: Apache-2.0
"""Files for devices, in the runtimes that read them."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import cac_tf
from cac_tf.export import edge_formats
from cac_tf.export import write_litert
from cac_tf.export import write_onnx
from tests.conftest import small_classifier
from tests.export import runtimes


def served(model, images, tmp_path):
    return runtimes.exported(model, tmp_path / "answers.saved")(images=images)


def assert_same(actual, expected):
    assert set(actual) == set(expected)
    runtimes.assert_same(actual, expected)


@pytest.mark.parametrize("suffix", runtimes.EDGE)
def test_the_same_answers(trained_pictures, tmp_path, suffix):
    """Batches of any size; NaN, infinity and overflow included."""
    model, pictures = trained_pictures
    images = np.float32(pictures)
    images[1, 3, 3] = np.nan
    images[5] = np.inf
    images[7] = 3e38
    expected = served(model, images, tmp_path)
    assert 0 < expected["is_unknown"].sum() < len(images)
    path = tmp_path / f"model{suffix}"
    runtimes.write(model, path, version=4)
    ask = runtimes.LOAD[suffix](path)
    for rows in (slice(None), slice(1, 2), slice(2, 5)):
        answer = ask(images=images[rows])
        assert_same(answer, {k: v[rows] for k, v in expected.items()})
        assert set(np.asarray(answer["model_version"])) == {4}


def fitted(score, rng, num_classes):
    """A model of vectors with a score, fitted to random outputs."""
    model = small_classifier(num_classes, width=7, score=score)
    model.build((None, 7))
    means = 10 * np.eye(num_classes) + rng.normal(0, 1, [num_classes] * 2)
    model.distance_head.assign_class_means(means)
    if model.score.IS_FITTED_TO_DATA:
        labels = np.arange(20 * num_classes) % num_classes
        logits = 10 * np.eye(num_classes)[labels]
        logits += rng.normal(0, 1, logits.shape)
        features = rng.normal(0, 5, (len(labels), 7))
        outputs = {"logits": logits, "features": features}
        model.score.fit(labels, **{n: outputs[n] for n in model.score.READS})
    return model


@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize("num_classes", [3, 80])
def test_every_score_in_one_file(tmp_path, rng, suffix, num_classes):
    """Its scores and its classes, of outputs that are given."""
    if suffix == ".onnx":
        pytest.importorskip("tf2onnx")
    rules = [
        fitted(n, rng, num_classes).score for n in cac_tf.scores.common_names()
    ]
    names = sorted({name for one in rules for name in one.reads_for_prediction})

    def scores(*values):
        outputs = dict(zip(names, values, strict=True))
        found = {}
        for one in rules:
            found[f"score by {one.name}"] = one(*one.arguments_of(outputs))
            found[f"class by {one.name}"] = one.predicted_class(outputs)
        return found

    values = {
        name: np.float32(rng.uniform(0, 9, (40, num_classes))) for name in names
    }
    values["features"] = np.float32(rng.normal(0, 5, (40, 7)))
    specs = [
        tf.TensorSpec((None, v.shape[1]), v.dtype, name=n)
        for n, v in values.items()
    ]
    write = {".onnx": edge_formats.onnx, ".tflite": edge_formats.litert}
    path = tmp_path / f"scores{suffix}"
    path.write_bytes(write[suffix](scores, specs))
    answer = runtimes.LOAD[suffix](path)(**values)
    expected = scores(*map(tf.constant, values.values()))
    assert set(answer) == set(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(
            answer[name], wanted, rtol=1e-4, atol=1e-4, err_msg=name
        )


@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize(
    ("num_classes", "score"), [(3, "vim"), (3, "knn"), (80, "openmax")]
)
def test_a_score_in_a_whole_model(tmp_path, rng, suffix, score, num_classes):
    model = fitted(score, rng, num_classes)
    x = np.float32(rng.normal(0, 5, (40, 7)))
    # In a gap: many scores of OpenMax are neighbours among the floats.
    ranked = np.sort(model.predict_scores(x).unknown_score)[9:31]
    widest = np.argmax(np.diff(ranked))
    model.set_threshold(ranked[widest : widest + 2].mean())
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(images=x)
    assert_same(answer, served(model, x, tmp_path))
    runtimes.assert_as_in_python(model, answer, x)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_becomes_float32(rng, tmp_path, suffix, policy):
    """Within what half precision rounds of the model in memory."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = cac_tf.OpenSetClassifier(
            cac_tf.models.openset_cnn(3, (8, 8, 1)),
            list("abc"),
            preprocessing=cac_tf.layers.ImagePreprocessing(8, 8),
        )
    finally:
        keras.config.set_dtype_policy(before)
    model.build((None, 8, 8, 1))
    images = np.float32(rng.uniform(0, 255, (20, 8, 8, 1)))
    model.calibrate(images, true_positive_rate=0.5)
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(
        images=images
    )
    expected = served(model, images, tmp_path)
    np.testing.assert_allclose(
        answer["distances"], expected["distances"], atol=0.02
    )
    np.testing.assert_array_equal(answer["threshold"], expected["threshold"])


def half_precision_model(policy, head=None, score="gamma"):
    """Of a network with convolutions; the head and the logits are float32."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        backbone = keras.Sequential(
            [
                keras.Input([12, 10, 3]),
                keras.layers.Conv2D(6, 3, strides=2, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(7, activation="relu"),
                keras.layers.Dense(3, dtype="float32"),
            ]
        )
        model = cac_tf.OpenSetClassifier(
            backbone,
            list("abc"),
            preprocessing=cac_tf.layers.ImagePreprocessing(12, 10, 0.2, 0.3),
            head=head and cac_tf.layers.AnchoredDistance(3, **head),
            score=score,
        )
    finally:
        keras.config.set_dtype_policy(before)
    model.compile(
        keras.optimizers.SGD(0.02, momentum=0.9), cac_tf.losses.CACLoss()
    )
    return model


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize(
    ("policy", "score", "centers"),
    [
        ("mixed_bfloat16", "gamma", "anchors"),
        ("mixed_bfloat16", "gamma", "class means"),
        ("mixed_bfloat16", "gamma", "anchors again"),
        ("mixed_bfloat16", "gamma", "learnt"),
        ("mixed_bfloat16", "openmax", "class means"),
        ("mixed_float16", "mahalanobis", "class means"),
        ("mixed_float16", "knn", "anchors"),
    ],
)
def test_half_precision_with_all_that_was_learnt(
    trained_pictures, tmp_path, rng, suffix, policy, score, centers
):
    """As a float32 model in memory that has the same weights."""
    teacher, pictures = trained_pictures
    labels = teacher.predict_scores(pictures).predicted_class_id
    head = {"learnt": True} if centers == "learnt" else None

    def trained(policy):
        keras.utils.set_random_seed(0)
        model = half_precision_model(policy, head, score)
        model.fit(pictures, labels, epochs=8, verbose=0)
        if centers in ("class means", "anchors again"):
            model.fit_centers(pictures, labels)
        if centers == "anchors again":
            model.distance_head.assign_anchors()
        model.fit_score(pictures, labels)
        return model

    model, whole = trained(policy), trained("float32")
    # Nearest neighbours would find themselves.
    pictures = np.uint8(
        np.clip(pictures + rng.normal(0, 25, pictures.shape), 0, 255)
    )
    model.calibrate(pictures, true_positive_rate=0.7)
    before = model.get_config(), model.get_weights()
    whole.set_weights(model.get_weights())
    # The half precision that this is about is there.
    assert (
        model.predict_scores(pictures).logits
        != whole.predict_scores(pictures).logits
    ).any()
    images = np.float32(pictures)
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(
        images=images
    )
    assert whole.threshold == model.threshold
    runtimes.assert_as_in_python(whole, answer, pictures)
    np.testing.assert_allclose(
        answer["distances"], model.predict_scores(pictures).distances, atol=0.3
    )
    # Of the model itself nothing has changed.
    assert model.get_config() == before[0]
    for now, then in zip(model.get_weights(), before[1], strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_layer_that_was_adapted(tmp_path, rng, suffix, policy):
    """What it computed from its weights is no weight, nor an input."""
    keras.config.set_dtype_policy(policy)
    try:
        rows = np.float32(20 * rng.standard_normal((60, 5)) + 7)
        normalize = keras.layers.Normalization()
        normalize.adapt(rows)
        backbone = keras.Sequential(
            [
                keras.Input([5]),
                normalize,
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dense(3, dtype="float32"),
            ]
        )
        model = small_classifier(backbone=backbone)
        model.build((None, 5))
        model.calibrate(rows, true_positive_rate=0.6)
        answer = runtimes.exported(model, tmp_path / f"model{suffix}")(
            images=rows
        )
    finally:
        keras.config.set_dtype_policy("float32")
    tolerance = 1e-4 if policy == "float32" else 0.1
    np.testing.assert_allclose(
        answer["distances"],
        model.predict_scores(rows).distances,
        atol=tolerance,
    )


def test_a_backbone_that_cannot_be_copied(tmp_path, rng):
    """It need not be, where all is float32 already."""

    class Own(keras.Model):
        def __init__(self, layers):
            super().__init__()
            self.own = layers

        def call(self, inputs):
            for layer in self.own:
                inputs = layer(inputs)
            return inputs

    model = small_classifier(
        backbone=Own([keras.layers.Dense(4), keras.layers.Dense(3)])
    )
    rows = np.float32(rng.standard_normal((6, 5)))
    model.predict_scores(rows)
    model.set_threshold(1.0)
    for suffix in runtimes.EDGE:
        answer = runtimes.exported(model, tmp_path / f"m{suffix}")(images=rows)
        runtimes.assert_as_in_python(model, answer, rows)


def test_a_copy_that_cannot_be_made_is_said(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(3, dtype="mixed_bfloat16")

        def call(self, inputs):
            return self.last(inputs)

    model = small_classifier(backbone=Own())
    model.build((None, 5))
    model.set_threshold(1.0)
    with pytest.raises(ValueError, match="half precision .* cannot be copied"):
        write_litert(model, tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", runtimes.EDGE)
def test_a_recurrent_backbone(tmp_path, rng, suffix):
    """ONNX has loops; for LiteRT they are unrolled."""
    unroll = suffix == ".tflite"
    backbone = keras.Sequential(
        [
            keras.Input([6, 2]),
            keras.layers.LSTM(4, unroll=unroll),
            keras.layers.Dense(3),
        ]
    )
    model = small_classifier(backbone=backbone)
    model.build((None, 6, 2))
    model.set_threshold(3.0)
    rows = np.float32(rng.standard_normal((7, 6, 2)))
    answer = runtimes.exported(model, tmp_path / f"m{suffix}")(images=rows)
    runtimes.assert_as_in_python(model, answer, rows)


@pytest.mark.parametrize("suffix", runtimes.EDGE)
def test_tables_are_refused(tmp_path, suffix):
    inputs = keras.Input([4], dtype="int64")
    ids = keras.layers.IntegerLookup(vocabulary=[3, 5])(inputs)
    x = keras.layers.Flatten()(keras.layers.Embedding(4, 2)(ids))
    model = small_classifier(
        backbone=keras.Model(inputs, keras.layers.Dense(3)(x))
    )
    model.build((None, 4))
    model.set_threshold(1.0)
    with pytest.raises(ValueError, match="table, which these files cannot"):
        runtimes.write(model, tmp_path / f"m{suffix}")
    assert not list(tmp_path.iterdir())


def test_operations_that_onnx_lacks(tmp_path):
    model = small_classifier(
        backbone=keras.Sequential(
            [
                keras.Input([3]),
                keras.layers.Lambda(tf.math.digamma, output_shape=(3,)),
                keras.layers.Dense(3),
            ]
        )
    )
    model.build((None, 3))
    model.set_threshold(1.0)
    with pytest.raises(ValueError, match="ONNX cannot hold .*Digamma"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_int8_weights_are_smaller_and_nearly_as_good(rng, tmp_path):
    """The head stays float32: with zero logits nothing has changed at all."""
    backbone = cac_tf.models.openset_cnn(6)
    model = cac_tf.OpenSetClassifier(backbone, list("abcdef"))
    model.build((None, 32, 32, 3))
    images = np.float32(rng.uniform(0, 1, (16, 32, 32, 3)))
    model.calibrate(images, true_positive_rate=0.5)
    write_litert(model, tmp_path / "float.tflite")
    write_litert(model, tmp_path / "int8.tflite", quantize="dynamic_range")
    sizes = [
        (tmp_path / f"{name}.tflite").stat().st_size
        for name in ("float", "int8")
    ]
    assert sizes[1] < 0.3 * sizes[0]
    whole, small = (
        runtimes.load_litert(tmp_path / f"{name}.tflite")(images=images)
        for name in ("float", "int8")
    )
    np.testing.assert_allclose(
        small["distances"], whole["distances"], rtol=0.02
    )
    assert (small["distances"] != whole["distances"]).any()


def test_bad_input(trained_blobs, tmp_path, monkeypatch):
    model = trained_blobs[0]
    with pytest.raises(ValueError, match="must end in .tflite"):
        write_litert(model, tmp_path / "model.lite")
    with pytest.raises(ValueError, match="must end in .onnx"):
        write_onnx(model, tmp_path / "model")
    with pytest.raises(ValueError, match="quantize must be None"):
        write_litert(model, tmp_path / "m.tflite", quantize="int4")
    with pytest.raises(ValueError, match="no valid threshold"):
        write_litert(small_classifier(), tmp_path / "m.tflite")
    monkeypatch.setitem(sys.modules, "tf2onnx.convert", None)
    with pytest.raises(ImportError, match=r"pip install 'cac-tf\[onnx\]'"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(pathlib.Path(tmp_path).iterdir())
