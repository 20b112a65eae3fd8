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
from cac_tf.export.edge_formats import write_litert
from cac_tf.export.edge_formats import write_onnx
from cac_tf.models.image_classifier import image_parts
from cac_tf.scores.registry import common_names
from tests.conftest import class_names
from tests.conftest import small_classifier
from tests.export import runtimes


def served(model, images, tmp_path):
    return runtimes.exported(model, tmp_path / "answers.saved")(images)


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
        answer = ask(images[rows])
        assert_same(answer, {k: v[rows] for k, v in expected.items()})
        assert set(np.asarray(answer["model_version"])) == {4}


def fitted(score, rng, num_classes):
    """The statistics of a score, of random outputs."""
    if not score.IS_FITTED_TO_DATA:
        return {}
    labels = np.arange(20 * num_classes) % num_classes
    logits = 10 * np.eye(num_classes)[labels]
    logits += rng.normal(0, 1, logits.shape)
    outputs = {
        "logits": logits,
        "features": rng.normal(0, 5, (len(labels), 7)),
    }
    return score.fit(labels, **{n: outputs[n] for n in score.READS})


@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize("num_classes", [3, 80])
def test_every_score_in_one_file(tmp_path, rng, suffix, num_classes):
    """Its scores and its classes, of outputs that are given."""
    if suffix == ".onnx":
        pytest.importorskip("tf2onnx")
    rules = [cac_tf.scores.get(n) for n in common_names()]
    learnt = {one.name: fitted(one, rng, num_classes) for one in rules}
    names = sorted({name for one in rules for name in one.reads_for_prediction})

    def scores(*values):
        outputs = dict(zip(names, values, strict=True))
        found = {}
        for one in rules:
            statistics = learnt[one.name]
            found[f"score by {one.name}"] = one(
                *one.arguments_of(outputs), **statistics
            )
            found[f"class by {one.name}"] = one.predicted_class(
                outputs, **statistics
            )
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
    score = cac_tf.scores.get(score)
    model = cac_tf.OpenSetClassifier(
        small_classifier(num_classes, width=7),
        class_names(num_classes),
        score,
        centers=10 * np.eye(num_classes) + rng.normal(size=[num_classes] * 2),
        statistics=fitted(score, rng, num_classes),
    )
    x = np.float32(rng.normal(0, 5, (40, 7)))
    # In a gap: many scores of OpenMax are neighbours among the floats.
    ranked = np.sort(model.predict_scores(x).unknown_score)[9:31]
    widest = np.argmax(np.diff(ranked))
    model.set_threshold(ranked[widest : widest + 2].mean())
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(x)
    assert_same(answer, served(model, x, tmp_path))
    runtimes.assert_as_in_python(model, answer, x)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_becomes_float32(rng, tmp_path, suffix, policy):
    """Within what half precision rounds of the model in memory."""
    keras.config.set_dtype_policy(policy)
    try:
        network = cac_tf.models.openset_cnn(3, (8, 8, 1))
        parts = image_parts((8, 8, 1), [0.5], [0.5], network)
        model = cac_tf.OpenSetClassifier(parts.classifier(), list("abc"))
    finally:
        keras.config.set_dtype_policy("float32")
    images = np.float32(rng.uniform(0, 255, (20, 8, 8, 1)))
    model.calibrate(images, true_positive_rate=0.5)
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(images)
    expected = model.predict_scores(images)
    np.testing.assert_allclose(
        answer["distances"], expected.distances, atol=0.02
    )
    np.testing.assert_array_equal(
        answer["threshold"], np.full(20, model.threshold, "float32")
    )


def convolutions(policy):
    """A classifier of color pictures; its logits are float32."""
    return keras.Sequential(
        [
            keras.Input([12, 10, 3]),
            cac_tf.layers.ImagePreprocessing(12, 10),
            cac_tf.layers.ChannelNormalization([0.2] * 3, [0.3] * 3),
            keras.layers.Conv2D(
                6, 3, strides=2, activation="relu", dtype=policy
            ),
            keras.layers.Flatten(dtype=policy),
            keras.layers.Dense(7, activation="relu", dtype=policy),
            keras.layers.Dense(3, dtype="float32"),
        ]
    )


@pytest.fixture(scope="module")
def half_precision(trained_pictures):
    """Trained classifiers by their policy, pictures and labels."""
    teacher, pictures = trained_pictures
    labels = teacher.predict_scores(pictures).predicted_class_id
    made = {}
    for policy in ("mixed_bfloat16", "mixed_float16"):
        keras.utils.set_random_seed(0)
        made[policy] = convolutions(policy)
        made[policy].compile(
            keras.optimizers.SGD(0.02, momentum=0.9), cac_tf.losses.CACLoss()
        )
        made[policy].fit(pictures, labels, epochs=8, verbose=0)
    return made, pictures, labels


@pytest.mark.slow
@pytest.mark.parametrize("suffix", runtimes.EDGE)
@pytest.mark.parametrize(
    ("policy", "score", "centers"),
    [
        ("mixed_bfloat16", "gamma", "anchors"),
        ("mixed_bfloat16", "gamma", None),
        ("mixed_bfloat16", "openmax", None),
        ("mixed_float16", "mahalanobis", None),
        ("mixed_float16", "knn", "anchors"),
    ],
)
def test_half_precision_with_all_that_was_learnt(
    half_precision, tmp_path, rng, suffix, policy, score, centers
):
    """As a float32 model in memory that has the same weights."""
    classifiers, pictures, labels = half_precision
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifiers[policy],
        (pictures, labels),
        class_names=list("abc"),
        score=score,
        centers=centers,
    )
    # Nearest neighbours would find themselves.
    pictures = np.uint8(
        np.clip(pictures + rng.normal(0, 25, pictures.shape), 0, 255)
    )
    model.calibrate(pictures, true_positive_rate=0.7)
    whole = cac_tf.OpenSetClassifier(
        convolutions("float32"),
        model.class_names,
        score,
        centers=model.magnitude if centers else model.centers,
        statistics=model.statistics,
    )
    whole.set_weights(model.get_weights())
    before = model.get_config(), model.get_weights()
    # The half precision that this is about is there.
    assert (
        model.predict_scores(pictures).logits
        != whole.predict_scores(pictures).logits
    ).any()
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(
        np.float32(pictures)
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
    rows = np.float32(20 * rng.standard_normal((60, 5)) + 7)
    normalize = keras.layers.Normalization(dtype=policy)
    normalize.adapt(rows)
    classifier = keras.Sequential(
        [
            keras.Input([5]),
            normalize,
            keras.layers.Dense(8, activation="relu", dtype=policy),
            keras.layers.Dense(3, dtype="float32"),
        ]
    )
    model = cac_tf.OpenSetClassifier(classifier, class_names(3))
    model.calibrate(rows, true_positive_rate=0.6)
    answer = runtimes.exported(model, tmp_path / f"model{suffix}")(rows)
    tolerance = 1e-4 if policy == "float32" else 0.1
    np.testing.assert_allclose(
        answer["distances"],
        model.predict_scores(rows).distances,
        atol=tolerance,
    )


def of_threshold(classifier, threshold, **options):
    """An open-set classifier of three classes."""
    return cac_tf.OpenSetClassifier(
        classifier, class_names(3), threshold=threshold, **options
    )


def test_a_classifier_that_cannot_be_copied(tmp_path, rng):
    """It need not be, where all is float32 already."""

    class Own(keras.Model):
        def __init__(self, layers):
            super().__init__()
            self.own = layers

        def call(self, inputs):
            for layer in self.own:
                inputs = layer(inputs)
            return inputs

    classifier = Own([keras.layers.Dense(4), keras.layers.Dense(3)])
    model = of_threshold(classifier, 10.0, input_shape=(5,))
    rows = np.float32(rng.standard_normal((6, 5)))
    for suffix in runtimes.EDGE:
        answer = runtimes.exported(model, tmp_path / f"m{suffix}")(rows)
        runtimes.assert_as_in_python(model, answer, rows)


def test_a_copy_that_cannot_be_made_is_said(tmp_path):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(3, dtype="mixed_bfloat16")

        def call(self, inputs):
            return self.last(inputs)

    model = of_threshold(Own(), 1.0, input_shape=(5,))
    with pytest.raises(ValueError, match="half precision .* cannot be copied"):
        write_litert(model, tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", runtimes.EDGE)
def test_a_recurrent_classifier(tmp_path, rng, suffix):
    """ONNX has loops; for LiteRT they are unrolled."""
    unroll = suffix == ".tflite"
    classifier = keras.Sequential(
        [
            keras.Input([6, 2]),
            keras.layers.LSTM(4, unroll=unroll),
            keras.layers.Dense(3),
        ]
    )
    model = of_threshold(classifier, 3.0)
    rows = np.float32(rng.standard_normal((7, 6, 2)))
    answer = runtimes.exported(model, tmp_path / f"m{suffix}")(rows)
    runtimes.assert_as_in_python(model, answer, rows)


@pytest.mark.parametrize("suffix", runtimes.EDGE)
def test_tables_are_refused(tmp_path, suffix):
    inputs = keras.Input([4], dtype="int64")
    ids = keras.layers.IntegerLookup(vocabulary=[3, 5])(inputs)
    x = keras.layers.Flatten()(keras.layers.Embedding(4, 2)(ids))
    model = of_threshold(keras.Model(inputs, keras.layers.Dense(3)(x)), 1.0)
    with pytest.raises(ValueError, match="table, which this format cannot"):
        runtimes.write(model, tmp_path / f"m{suffix}")
    assert not list(tmp_path.iterdir())


def test_operations_that_onnx_lacks(tmp_path):
    classifier = keras.Sequential(
        [
            keras.Input([3]),
            keras.layers.Lambda(tf.math.digamma, output_shape=(3,)),
            keras.layers.Dense(3),
        ]
    )
    model = of_threshold(classifier, 1.0)
    with pytest.raises(ValueError, match="converted to ONNX: .*Digamma"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_int8_weights_are_smaller_and_nearly_as_good(rng, tmp_path):
    """Distances stay float32: with zero logits nothing has changed at all."""
    model = cac_tf.OpenSetClassifier(
        cac_tf.models.openset_cnn(6), list("abcdef")
    )
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
        runtimes.load_litert(tmp_path / f"{name}.tflite")(images)
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
    with pytest.raises(ValueError, match="no threshold"):
        write_litert(model.with_score("gamma"), tmp_path / "m.tflite")
    monkeypatch.setitem(sys.modules, "tf2onnx.convert", None)
    with pytest.raises(ImportError, match=r"pip install 'cac-tf\[onnx\]'"):
        write_onnx(model, tmp_path / "m.onnx")
    assert not list(pathlib.Path(tmp_path).iterdir())
