# SPDX-License-Identifier: Apache-2.0
"""Models on whole numbers: token ids, and images that are taken as uint8."""

import functools
import json

import keras
import numpy as np
import pytest
from keras import layers

import cac_tf
from tests.execution import BACKEND

ON_TENSORFLOW = BACKEND == "tensorflow"
export_only = pytest.mark.skipif(
    not ON_TENSORFLOW, reason="export needs TensorFlow"
)
WORDS, LENGTH = 30, 6


def texts(rng, rows=240):
    """Token ids whose class shows in which ids are frequent."""
    labels = np.arange(rows) % 3
    ids = rng.integers(0, 10, (rows, LENGTH)) + 10 * labels[:, None]
    return ids.astype("int32"), labels


def on_tokens(dtype="int32"):
    inputs = keras.Input([LENGTH], dtype=dtype)
    x = layers.Embedding(WORDS, 8)(inputs)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(8, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(3)(x))


@functools.cache
def trained(dtype="int32", is_declared=True):
    """A trained classifier; examples of a bank are not asked again."""
    keras.utils.set_random_seed(0)
    classifier = on_tokens(dtype)
    if not is_declared:
        classifier = keras.Sequential(
            [
                layers.Embedding(WORDS, 8),
                layers.GlobalAveragePooling1D(),
                layers.Dense(3),
            ]
        )
    classifier.compile("adam", cac_tf.losses.CACLoss(), metrics=["accuracy"])
    classifier.fit(*texts(np.random.default_rng(0)), epochs=25, verbose=0)
    return classifier


def product(score, **kinds):
    """A calibrated model, and inputs and labels that it has not seen."""
    model = cac_tf.OpenSetClassifier.from_classifier(
        trained(**kinds),
        texts(np.random.default_rng(0)),
        class_names=["low", "middle", "high"],
        score=score,
    )
    x, y = texts(np.random.default_rng(1))
    model.calibrate(x, true_positive_rate=0.9)
    return model, x, y


def test_from_tokens_to_decisions_and_back_from_disk(tmp_path):
    model, x, y = product("gamma")
    assert model.inputs_taken.dtype == "int32"
    out = model.predict_open_set(x)
    assert (out.predicted_class_id == y).mean() > 0.9
    assert 0.05 < out.is_unknown.mean() < 0.15
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.inputs_taken.dtype == "int32"
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, out.class_id
    )
    # Whole numbers of any type are these numbers; others are none.
    for same in (x.astype("int64"), x.astype("uint8"), x.astype("float64")):
        np.testing.assert_array_equal(
            model.predict_open_set(same).class_id, out.class_id
        )
    broken = x.astype("float32")
    broken[7, 2] += 0.5
    with pytest.raises(ValueError, match="whole numbers.*position 7 contains"):
        model.predict_open_set(broken)


def test_a_model_whose_inputs_are_not_declared():
    model, x, y = product("gamma", is_declared=False)
    assert model.inputs_taken.dtype == "int32"
    assert model.inputs_taken.shape == (LENGTH,)
    assert (model.predict_open_set(x).predicted_class_id == y).mean() > 0.9


def signature_dtypes(path):
    import tensorflow as tf

    signatures = tf.saved_model.load(str(path)).signatures
    return {
        name: {
            key: spec.dtype.name
            for key, spec in function.structured_input_signature[1].items()
        }
        for name, function in signatures.items()
    }


@pytest.mark.slow
@export_only
@pytest.mark.parametrize(
    ("dtype", "by_class"), [("int32", True), ("int64", False)]
)
def test_exported(tmp_path, dtype, by_class):
    """Signatures have the model's own type, and give its decisions."""
    import tensorflow as tf

    model, x, _ = product("vim", dtype=dtype)
    model.calibrate(x, true_positive_rate=0.8, by_class=by_class)
    x = x.astype(dtype)
    expected = model.predict_open_set(x)
    folder = cac_tf.export.write_model_folder(model, tmp_path / "tokens", 1)
    assert signature_dtypes(folder) == {
        "serving_default": {"inputs": dtype},
        "with_threshold": {"inputs": dtype, "threshold": "float32"},
        "classify": {"inputs": "string"},
    }
    signatures = tf.saved_model.load(folder).signatures
    out = signatures["serving_default"](tf.constant(x))
    np.testing.assert_array_equal(out["class_id"], expected.class_id)
    np.testing.assert_allclose(
        out["unknown_score"], expected.unknown_score, rtol=1e-4, atol=1e-5
    )
    assert out["is_valid"].numpy().all()
    # A threshold that is not allowed marks its own row.
    column = np.full(4, 1e9, "float32")
    column[2] = np.nan
    out = signatures["with_threshold"](
        inputs=tf.constant(x[:4]), threshold=tf.constant(column)
    )
    assert out["is_valid"].numpy().tolist() == [True, True, False, True]
    assert out["is_unknown"].numpy().tolist() == [False, False, True, False]
    assert all(
        np.isfinite(value).all()
        for value in out.values()
        if value.dtype.is_floating
    )

    def example(values):
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        features = tf.train.Features(feature={"features": feature})
        return tf.train.Example(features=features).SerializeToString()

    rows = [example(x[0]), example(x[1][:2]), b"no example"]
    out = signatures["classify"](inputs=tf.constant(rows))
    first = [model.class_names[i] for i in expected.class_id[:1]]
    names = [name.decode() for name in out["classes"][:, 0].numpy()]
    if expected.class_id[0] != -1:
        assert names[:1] == first
    assert names[1:] == ["unknown", "unknown"]
    # The requests that come with the folder are ones that it takes.
    request = json.loads(
        (tmp_path / "tokens" / "requests" / "serving_default.json").read_text()
    )
    rows = tf.constant(request["instances"], dtype)
    assert signatures["serving_default"](rows)["is_valid"].numpy().all()
    readme = (tmp_path / "tokens" / "README.md").read_text()
    assert f"`inputs`: {dtype}, batch x {LENGTH}" in readme


@pytest.mark.slow
@export_only
@pytest.mark.parametrize("suffix", [".tflite", ".onnx"])
def test_edge_formats(tmp_path, suffix):
    from tests.export import runtimes

    model, x, _ = product("gamma")
    ask = runtimes.exported(model, tmp_path / f"model{suffix}")
    expected = model.predict_open_set(x)
    apart = np.abs(expected.unknown_score - model.threshold) > 1e-4
    np.testing.assert_array_equal(
        ask(x)["class_id"][apart], expected.class_id[apart]
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("uint8", [256.0, -1]),
        ("int32", [2**32 + 3, 2.0**40, np.float32(2**31)]),
        ("int64", [2.0**63]),
    ],
)
def test_whole_numbers_that_the_type_does_not_hold(dtype, values):
    inputs = keras.Input([2], dtype=dtype)
    outputs = layers.Dense(2)(layers.Embedding(256, 4)(inputs)[:, 0])
    model = cac_tf.OpenSetClassifier(keras.Model(inputs, outputs), ["a", "b"])
    for value in values:
        with pytest.raises(ValueError, match="position 1 contains"):
            model.predict_scores(np.array([[0, 1], [2, value]]))


class Lookups(layers.Layer):
    """Two tables one after the other, in a list."""

    def __init__(self, **kwargs):
        import tensorflow as tf

        super().__init__(**kwargs)
        self.tables = [
            tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    np.int64(keys), np.int64(values)
                ),
                default_value=0,
            )
            for keys, values in (([3, 5, 7], [10, 20, 30]), ([10, 30], [1, 2]))
        ]

    def call(self, inputs):
        for table in self.tables:
            inputs = table.lookup(inputs)
        return inputs


@export_only
@pytest.mark.parametrize(
    "lookup", [lambda: layers.IntegerLookup(vocabulary=[3, 5, 7]), Lookups]
)
def test_a_model_with_a_table_is_exported(lookup, tmp_path):
    import tensorflow as tf

    inputs = keras.Input([LENGTH], dtype="int64")
    ids = lookup()(inputs)
    x = layers.Flatten()(layers.Embedding(5, 4)(ids))
    classifier = keras.Model(inputs, layers.Dense(2)(x))
    model = cac_tf.OpenSetClassifier(classifier, ["a", "b"])
    model.set_threshold(5.0)
    words = np.array([[3, 5, 7, 9, 3, 3], [7, 7, 7, 7, 1, 1]])
    model.export(str(tmp_path / "model"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures
    answers = served["serving_default"](tf.constant(words))
    np.testing.assert_allclose(
        answers["unknown_score"],
        model.predict_open_set(words).unknown_score,
        rtol=1e-5,
    )


def test_large_whole_numbers_are_as_large_on_every_backend():
    """Milliseconds since 1970: JAX would cut them to 32 bits."""
    inputs = keras.Input([2])
    scaled = layers.Rescaling(1e-12)(inputs)
    model = cac_tf.OpenSetClassifier(
        keras.Model(inputs, layers.Dense(2)(scaled)), ["a", "b"]
    )
    rows = np.array([[1_700_000_000_000, 1], [-1_600_000_000_000, 2]])
    np.testing.assert_array_equal(
        model.predict_scores(rows).logits,
        model.predict_scores(rows.astype("float32")).logits,
    )


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int64"])
def test_whole_numbers_of_another_type(dtype, recwarn):
    inputs = keras.Input([2], dtype="int32")
    outputs = layers.Dense(2)(layers.Embedding(256, 4)(inputs)[:, 0])
    model = cac_tf.OpenSetClassifier(keras.Model(inputs, outputs), ["a", "b"])
    rows = np.array([[0, 1], [200, 3]])
    np.testing.assert_array_equal(
        model.predict_scores(rows.astype(dtype)).distances,
        model.predict_scores(rows.astype("int32")).distances,
    )
    assert not [w for w in recwarn if "overflow" in str(w.message)]


@export_only
def test_images_that_a_model_takes_as_bytes(tmp_path, rng):
    """Its own type is uint8; files are still decoded for it."""
    import tensorflow as tf

    inputs = keras.Input([6, 5, 3], dtype="uint8")
    x = layers.Flatten()(layers.Rescaling(1 / 255)(inputs))
    model = cac_tf.OpenSetClassifier(
        keras.Model(inputs, layers.Dense(2)(x)), ["a", "b"]
    )
    images = rng.integers(0, 256, (8, 6, 5, 3)).astype("uint8")
    model.calibrate(images, true_positive_rate=0.5)
    model.export(tmp_path / "saved")
    types = signature_dtypes(tmp_path / "saved")
    assert types["serving_default"] == {"images": "uint8"}
    assert types["uint8_images"] == {"images": "uint8"}
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    expected = model.predict_open_set(images).class_id
    out = signatures["serving_default"](tf.constant(images))
    np.testing.assert_array_equal(out["class_id"], expected)
    files = [tf.io.encode_png(image).numpy() for image in images]
    out = signatures["encoded_images"](tf.constant([*files, b"?"]))
    np.testing.assert_array_equal(out["class_id"][:-1], expected)
    assert out["is_valid"].numpy().tolist() == [True] * 8 + [False]
