# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf

import cac_tf
from cac_tf.export import write_model_folder
from cac_tf.export.edge_formats import write_litert
from cac_tf.export.edge_formats import write_onnx
from cac_tf.export.saved_model import write_saved_model
from tests import oracle
from tests.conftest import class_names
from tests.conftest import small_classifier
from tests.export import runtimes
from tests.serving import references

OUTPUTS = {
    "class_id",
    "label",
    "is_unknown",
    "unknown_score",
    "p_value",
    "predicted_class_id",
    "gamma",
    "distances",
    "probabilities",
    "threshold",
    "model_version",
    "is_valid",
}

# All ways to write a model.
WAYS = (
    (write_saved_model, "saved"),
    (lambda model, path: model.export(path), "saved"),
    (lambda model, path: write_model_folder(model, path, 1), "served"),
    (write_litert, "model.tflite"),
    (write_onnx, "model.onnx"),
)

# Loads and calls an export without any of this project's code.
CLEAN_CLIENT = """
    import json, sys
    import numpy as np
    import tensorflow as tf

    path, inputs, outputs = sys.argv[1:]
    model = tf.saved_model.load(path)
    serve = model.signatures["serving_default"]
    out = serve(tf.constant(np.load(inputs)))
    graph = serve.graph.as_graph_def()
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes += function.node_def
    assert not any(name.startswith("cac_tf") for name in sys.modules)
    np.savez(
        outputs,
        ops=sorted({n.op for n in nodes}),
        **{k: v.numpy() for k, v in out.items() if k != "label"},
        label=out["label"].numpy().astype("S"),
    )
"""


@pytest.fixture(scope="module")
def exported_blobs(trained_blobs, tmp_path_factory):
    path = tmp_path_factory.mktemp("blobs") / "saved"
    trained_blobs[0].export(path)
    return path


def served(path, inputs, tmp_path):
    np.save(tmp_path / "in.npy", inputs)
    subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(CLEAN_CLIENT),
            str(path),
            str(tmp_path / "in.npy"),
            str(tmp_path / "out.npz"),
        ],
        cwd=tmp_path,
        check=True,
    )
    return dict(np.load(tmp_path / "out.npz"))


def test_the_served_model_decides_like_the_one_in_memory(
    trained_blobs, exported_blobs, tmp_path, rng
):
    model, x, _ = trained_blobs
    inputs = np.concatenate([x, np.float32(rng.normal(0, 3, (100, 5)))])
    out = served(exported_blobs, inputs, tmp_path)
    expected = model.predict_open_set(inputs)
    assert 0 < expected.is_unknown.sum() < len(inputs)
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_array_equal(out["is_unknown"], expected.is_unknown)
    np.testing.assert_array_equal(out["label"].astype(str), expected.label)
    np.testing.assert_array_equal(
        out["predicted_class_id"], expected.predicted_class_id
    )
    for name in ("gamma", "distances", "unknown_score"):
        np.testing.assert_allclose(
            out[name], getattr(expected, name), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(out["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(out["threshold"], model.threshold)
    # Stock operations of TensorFlow only, and no branch.
    ops = set(out["ops"])
    assert not any(">" in op or "CacTf" in op for op in ops)
    assert ops <= set(tf.raw_ops.__dict__) | {"Placeholder"}
    assert not ops & {"If", "StatelessIf", "Bitcast", "PyFunc"}
    assert "ArgMin" in ops


def test_signatures_and_outputs(trained_pictures, served_pictures):
    """Everything is asked for and answered by the row."""
    model, _ = trained_pictures
    loaded = tf.saved_model.load(served_pictures / "3")
    assert set(loaded.signatures) == {
        "serving_default",
        "uint8_images",
        "encoded_images",
        "with_threshold",
        "classify",
    }
    for name, function in loaded.signatures.items():
        specs = function.structured_input_signature[1].values()
        outputs = function.structured_outputs
        assert all(spec.shape[0] is None for spec in specs)
        assert all(value.shape[0] is None for value in outputs.values())
        if name != "classify":
            assert set(outputs) == OUTPUTS
        assert not any(output.endswith("_bytes") for output in outputs)
    labels = served_pictures / "3" / "assets" / "labels.txt"
    labels = labels.read_text("utf-8")
    assert labels.splitlines() == list(model.class_names)


@pytest.mark.parametrize("by_class", [False, True])
def test_every_signature_answers_as_the_equations(
    trained_pictures, served_pictures, tmp_path, by_class
):
    """Also rows that are not in order, beside others that are."""
    model, pictures = trained_pictures
    path = served_pictures / "3"
    if by_class:
        model = references.with_thresholds_by_class(model, pictures)
        path = tmp_path / "saved"
        write_saved_model(model, path, version=3)
    loaded = tf.saved_model.load(path)
    for name, inputs, expected in references.cases(model, pictures, 3):
        inputs = {k: tf.constant(v) for k, v in inputs.items()}
        if expected is None:
            with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
                loaded.signatures[name](**inputs)
            continue
        answer = loaded.signatures[name](**inputs)
        assert set(answer) == set(expected)
        for output, wanted in expected.items():
            got = answer[output].numpy()
            if got.dtype == object:
                wanted = [_bytes(value) for value in np.ravel(wanted)]
                assert got.ravel().tolist() == wanted
            elif got.dtype == "float32":
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(got, wanted)


def _bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


def test_only_what_is_asked_for_is_saved(trained_pictures, served_pictures):
    """The classifier's weights and the centers; the threshold is a constant."""
    model, _ = trained_pictures
    variables = tf.train.list_variables(
        str(served_pictures / "3" / "variables" / "variables")
    )
    shapes = [shape for name, shape in variables if "VARIABLE" in name]
    expected = [list(w.shape) for w in model.classifier.weights] + [[3, 3]]
    assert sorted(map(list, shapes)) == sorted(expected)


def test_a_row_does_not_notice_its_neighbours(
    trained_pictures, served_pictures
):
    """Answers are the same, bit for bit, alone or among bad rows."""
    ask = runtimes.load_saved_model(served_pictures / "3")
    images = np.float32(trained_pictures[1][:8])
    clean = ask(images)
    mixed_images = images.copy()
    mixed_images[::2] = np.nan
    mixed = ask(mixed_images)
    for name in OUTPUTS:
        np.testing.assert_array_equal(mixed[name][1::2], clean[name][1::2])
    assert not mixed["is_valid"][::2].any()


def test_scores_by_logits_take_negative_thresholds(trained_pictures, tmp_path):
    model, pictures = trained_pictures
    model = model.with_score("max_logit")
    model.calibrate(pictures, true_positive_rate=0.5)
    assert model.threshold < 0
    ask = runtimes.asking(model, tmp_path / "saved", "with_threshold")
    thresholds = np.full(len(pictures), model.threshold, "float32")
    thresholds[0] = -np.inf
    answer = ask(np.float32(pictures), threshold=thresholds)
    assert answer["is_valid"].tolist() == [False] + 47 * [True]
    expected = model.predict_open_set(pictures)
    np.testing.assert_array_equal(answer["class_id"][1:], expected.class_id[1:])
    np.testing.assert_allclose(
        answer["probabilities"][1:],
        tf.nn.softmax(model.predict_scores(pictures).logits)[1:],
        atol=1e-6,
    )


def test_a_score_with_statistics(trained_blobs, tmp_path, rng):
    """NaN rows included."""
    model, x, y = trained_blobs
    model = model.with_score("openmax", x, y)
    model.set_threshold(0.5)
    inputs = np.concatenate([x, np.float32(rng.normal(0, 3, (50, 5)))])
    expected = model.predict_open_set(inputs)
    assert 0 < expected.is_unknown.sum() < len(inputs)
    sent = np.concatenate([inputs, np.full((1, 5), np.nan, "float32")])
    answer = runtimes.exported(model, tmp_path / "model.saved")(sent)
    assert answer["is_valid"].tolist() == [True] * len(inputs) + [False]
    for name in ("unknown_score", "probabilities", "gamma", "distances"):
        assert np.isfinite(answer[name]).all()
    np.testing.assert_array_equal(answer["class_id"][:-1], expected.class_id)
    np.testing.assert_allclose(
        answer["unknown_score"][:-1], expected.unknown_score, atol=1e-5
    )


def test_without_a_threshold_nothing_is_rejected(trained_pictures, tmp_path):
    model, pictures = trained_pictures
    fresh = model.with_score("gamma")
    assert fresh.threshold is None
    ask = runtimes.exported(
        fresh, tmp_path / "model.saved", allow_uncalibrated=True
    )
    assert fresh.threshold is None
    images = np.float32(pictures)
    images[3] = np.nan
    answer = ask(images)
    assert np.flatnonzero(answer["is_unknown"]).tolist() == [3]
    assert np.unique(answer["threshold"]) == np.finfo("float32").max


def test_inputs_that_are_no_images(trained_blobs, exported_blobs):
    """Vectors have no files; the Classify API takes their numbers."""
    model, x, _ = trained_blobs
    loaded = tf.saved_model.load(exported_blobs)
    assert set(loaded.signatures) == {
        "serving_default",
        "with_threshold",
        "classify",
    }
    whole = np.float32([0, 3, 0, 0, 0])
    vector, integers, short, nothing = (tf.train.Example() for _ in range(4))
    vector.features.feature["features"].float_list.value.extend(x[0])
    # A REST request of whole numbers arrives so.
    values = integers.features.feature["features"].int64_list.value
    values.extend(whole.astype(int).tolist())
    short.features.feature["features"].float_list.value.extend([1.0])
    rows = [e.SerializeToString() for e in (vector, integers, short, nothing)]
    out = loaded.signatures["classify"](
        inputs=tf.constant([*rows, b"no Example"])
    )
    decided = model.predict_open_set(np.stack([x[0], whole])).label
    assert decided[1] == "class 1"
    first = [value.decode() for value in out["classes"][:, 0].numpy()]
    assert first == [*decided, "unknown", "unknown", "unknown"]
    assert out["scores"][2:, 0].numpy().tolist() == [1.0, 1.0, 1.0]
    # Where no row has the feature, its name is said.
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="the feature features"
    ):
        loaded.signatures["classify"](inputs=tf.constant(rows[-1:]))


def test_ids_that_are_in_no_table(tmp_path, rng):
    """In every runtime, a row that is not valid; its neighbours are."""
    table = keras.Sequential(
        [
            keras.Input([5], dtype="int32"),
            keras.layers.Embedding(50, 8),
            *(keras.layers.Flatten(), keras.layers.Dense(3)),
        ]
    )
    model = cac_tf.OpenSetClassifier(table, class_names(3), threshold=1e6)
    ids = rng.integers(0, 50, (6, 5)).astype("int32")
    expected = model.predict_open_set(ids).class_id
    ids[2, 1], ids[4, 0] = 50, -1
    for suffix in runtimes.LOAD:
        answer = runtimes.exported(model, tmp_path / f"m{suffix}")(ids)
        valid = [True, True, False, True, False, True]
        assert answer["is_valid"].tolist() == valid
        np.testing.assert_array_equal(
            answer["class_id"], np.where(valid, expected, -1)
        )
    rows = []
    for row in (ids[0], ids[2], ids[1] + np.int64(2**32)):
        one = tf.train.Example()
        one.features.feature["features"].int64_list.value.extend(row.tolist())
        rows.append(one.SerializeToString())
    ask = runtimes.asking(model, tmp_path / "saved", "classify")
    found = ask(inputs=np.array(rows, object))
    first = [value.decode() for value in found["classes"][:, 0]]
    assert first == [model.class_names[expected[0]], "unknown", "unknown"]


def test_numbers_that_are_no_pixels(trained_pictures, served_pictures):
    """Rows that Python refuses."""
    model, pictures = trained_pictures
    ask = runtimes.load_saved_model(served_pictures / "3")
    images = np.float32(pictures[:4])
    for place, value in ((1, -1.0), (3, 255.5)):
        images[place, 5, 5, 0] = value
        with pytest.raises(ValueError, match=r"pixels in 0\.\.\.255"):
            model.predict_open_set(images[[place]])
    answer = ask(images)
    assert answer["is_valid"].tolist() == [True, False, True, False]


def test_images_of_any_size_are_asked_for_in_the_networks(tmp_path):
    classifier = keras.Sequential(
        [
            keras.Input([None, None, 1]),
            cac_tf.layers.ImagePreprocessing(6, 4),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )
    model = cac_tf.OpenSetClassifier(classifier, ["dark", "light"])
    write_saved_model(model, tmp_path / "saved", allow_uncalibrated=True)
    ask = runtimes.load_saved_model(tmp_path / "saved", "uint8_images")
    (spec,) = ask.signature.structured_input_signature[1].values()
    assert spec.shape.as_list() == [None, 6, 4, 1]
    grey = references.encoded(np.full((9, 9, 1), 100, "uint8"))
    ask = runtimes.load_saved_model(tmp_path / "saved", "encoded_images")
    answer = ask(np.array([grey], object))
    assert answer["is_valid"].all()
    # The mean of equal pixels, and anchors of length 10.
    (dense,) = classifier.layers[-1:]
    logits = 100 / 255 * np.asarray(dense.kernel)
    np.testing.assert_allclose(
        answer["distances"],
        oracle.distances(logits, 10 * np.eye(2)),
        rtol=1e-5,
    )


def test_bad_input(trained_blobs, tmp_path):
    model = trained_blobs[0]
    with pytest.raises(ValueError, match="no threshold"):
        model.with_score("gamma").export(tmp_path / "other")
    with pytest.raises(ValueError, match="tf_saved_model"):
        model.export(tmp_path / "other", format="onnx")
    assert not (tmp_path / "other").exists()
    (tmp_path / "other").mkdir()
    with pytest.raises(FileExistsError, match="other already exists"):
        model.export(tmp_path / "other")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["kernel", "mean", "centers", "statistic"])
def test_weights_that_are_not_finite_are_not_exported(
    rng, tmp_path, value, place
):
    """By name, in every format, and nothing is left of the attempt."""
    normalize = keras.layers.Normalization()
    normalize.adapt(np.float32(rng.standard_normal((20, 5))))
    dense = keras.layers.Dense(3)
    model = cac_tf.OpenSetClassifier(
        keras.Sequential([keras.Input([5]), normalize, dense]),
        class_names(3),
        "knn",
        centers=np.eye(3),
        statistics={"bank": np.eye(5)},
        threshold=1.0,
    )
    variable = {
        "kernel": dense.kernel,
        "mean": normalize.adapt_mean,
        "centers": model.class_centers,
        "statistic": model.statistic_bank,
    }[place]
    values = np.array(variable)
    values.flat[1] = value
    variable.assign(values)
    message = f"weight {variable.path} is NaN or infinite in 1 of {values.size}"
    for write, name in WAYS:
        with pytest.raises(ValueError, match=re.escape(message)):
            write(model, tmp_path / name)
        assert not list(tmp_path.rglob("*.*"))
        assert not (tmp_path / name / "1").exists()


def test_a_shared_classifier_that_was_trained_on_is_not_exported(
    trained_blobs, tmp_path
):
    """By none of the ways."""
    _, x, y = trained_blobs
    classifier = small_classifier()
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, x, y, centers="anchors", score="gamma", copy=False
    )
    model.calibrate(x, true_positive_rate=0.9)
    classifier.fit(x, y, verbose=0)
    for write, name in WAYS:
        with pytest.raises(RuntimeError, match="weights have changed since"):
            write(model, tmp_path / name)
    assert not list(tmp_path.rglob("*.*"))


def test_export_under_jax_says_where_to_do_it(trained_blobs, tmp_path):
    model, *_ = trained_blobs
    model.save(tmp_path / "model.keras")
    code = f"""
        import json, cac_tf
        model = cac_tf.load_model({str(tmp_path / "model.keras")!r})
        try:
            model.export({str(tmp_path / "export")!r})
        except RuntimeError as error:
            print(json.dumps(str(error)))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "KERAS_BACKEND=tensorflow" in json.loads(result.stdout)
