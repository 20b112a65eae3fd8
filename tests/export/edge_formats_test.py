# SPDX-License-Identifier: Apache-2.0
"""Files for devices, in the runtimes that read them."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import cac_tf
from cac_tf.export import write_litert
from cac_tf.export import write_onnx
from tests.conftest import small_classifier


def run_litert(path, images):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    return litert.Interpreter(str(path)).get_signature_runner()(images=images)


def run_onnx(path, images):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path))
    assert session.get_inputs()[0].shape[0] == "batch"
    names = [output.name for output in session.get_outputs()]
    assert all(o.shape[0] == "batch" for o in session.get_outputs())
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


def write(model, path, **options):
    """Writes the file that a name asks for."""
    if path.suffix == ".onnx":
        pytest.importorskip("tf2onnx")
        write_onnx(model, path, **options)
    else:
        write_litert(model, path, **options)


RUN = {".onnx": run_onnx, ".tflite": run_litert}


def served(model, images, tmp_path):
    model.export(tmp_path / "saved")
    ask = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    return {k: v.numpy() for k, v in ask(images=tf.constant(images)).items()}


def assert_same(actual, expected):
    assert set(actual) == set(expected)
    for name, wanted in expected.items():
        if name == "model_version":
            continue
        got = np.asarray(actual[name])
        if wanted.dtype == "float32":
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
        elif wanted.dtype == object:
            assert list(map(_text, got)) == list(map(_text, wanted))
        else:
            np.testing.assert_array_equal(got, wanted)


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("suffix", RUN)
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
    write(model, path, version=4)
    for rows in (slice(None), slice(1, 2), slice(2, 5)):
        answer = RUN[suffix](path, images[rows])
        assert_same(answer, {k: v[rows] for k, v in expected.items()})
        assert set(np.asarray(answer["model_version"])) == {4}


@pytest.mark.parametrize("suffix", RUN)
@pytest.mark.parametrize(
    ("num_classes", "score"),
    [
        *((3, n) for n in cac_tf.scores.names() if n != "gamma"),
        *((80, n) for n in ("min_distance", "openmax")),
    ],
)
def test_every_score_with_few_and_many_classes(
    tmp_path, rng, suffix, score, num_classes
):
    model = small_classifier(num_classes, width=7, score=score)
    model.build((None, 7))
    means = 10 * np.eye(num_classes) + rng.normal(0, 1, [num_classes] * 2)
    model.distance_head.assign_class_means(means)
    x = np.float32(rng.normal(0, 5, (40, 7)))
    if model.score.IS_FITTED_TO_DATA:
        labels = np.arange(20 * num_classes) % num_classes
        logits = 10 * np.eye(num_classes)[labels]
        logits += rng.normal(0, 1, logits.shape)
        features = rng.normal(0, 5, (len(labels), 7))
        outputs = {"logits": logits, "features": features}
        model.score.fit(labels, **{n: outputs[n] for n in model.score.NEEDS})
    # Between two scores: one that is theta itself may round to either side.
    ranked = np.sort(model.predict_scores(x).unknown_score)
    model.decision.threshold = ranked[19:21].mean()
    path = tmp_path / f"model{suffix}"
    write(model, path)
    assert_same(RUN[suffix](path, x), served(model, x, tmp_path))


@pytest.mark.parametrize("suffix", RUN)
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
    path = tmp_path / f"model{suffix}"
    write(model, path)
    answer = RUN[suffix](path, images)
    expected = served(model, images, tmp_path)
    np.testing.assert_allclose(
        answer["distances"], expected["distances"], atol=0.02
    )
    np.testing.assert_array_equal(answer["threshold"], expected["threshold"])


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
    whole = run_litert(tmp_path / "float.tflite", images)
    small = run_litert(tmp_path / "int8.tflite", images)
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
