# SPDX-License-Identifier: Apache-2.0
"""What a classifier takes: one array of numbers, of its shape and scale."""

import functools
import warnings

import keras
import numpy as np
import pytest
from keras import layers

import cac_tf
from cac_tf.models import input_checks
from cac_tf.models.inputs import InputKind
from cac_tf.models.inputs import kind_of_inputs

make = cac_tf.OpenSetClassifier.from_classifier


# ---- kinds of models ------------------------------------------------------


def test_models_of_several_inputs_are_refused():
    one, two = keras.Input([5], name="one"), keras.Input([5], name="two")
    logits = layers.Dense(3)(layers.Add()([one, two]))
    x, y = np.zeros((3, 5), "float32"), np.arange(3)
    for inputs, message in (
        ([one, two], r"takes 2 inputs \(one, two\).*single array.*Concatenate"),
        ({"one": one, "two": two}, r"takes a dict of inputs \(one, two\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make(keras.Model(inputs, logits), x, y)
    alone = keras.Input([5], name="alone")
    model = keras.Model({"alone": alone}, layers.Dense(3)(alone))
    with pytest.raises(ValueError, match=r"a dict of inputs \(alone\)"):
        make(model, x, y)


def test_a_list_of_one_input_is_that_input(rng):
    inputs = keras.Input([5])
    classifier = keras.Model([inputs], layers.Dense(3)(inputs))
    x = np.float32(rng.random((30, 5)))
    model = cac_tf.OpenSetClassifier(classifier, list("abc"))
    logits = np.asarray(classifier([x]))
    np.testing.assert_allclose(model.predict_scores(x).logits, logits, 1e-5)


def test_data_of_another_kind(trained_blobs):
    model, x, y = trained_blobs
    for data, message in (
        ("photo.jpg", r"file name; got 'photo.jpg'.*load_img\(path\)"),
        ({"x": x}, r"not a dict \(x\)"),
        (np.array([["a"] * 5]), "array of numbers; got dtype <U1"),
        (np.array([[None] * 5]), "array of numbers; got dtype object"),
    ):
        for call in (
            model.predict_open_set,
            lambda data: make(model.classifier, data, [0]),
            lambda data: model.evaluate(data, [0]),
            lambda data: model.with_score("knn", data, [0]),
            lambda data: model.calibrate(data, true_positive_rate=0.9),
        ):
            with pytest.raises(ValueError, match=message):
                call(data)


# ---- what the first layers say --------------------------------------------


def of_pixels(*first, size=(6, 5, 1)):
    return keras.Sequential(
        [keras.Input(size), *first, layers.Flatten(), layers.Dense(2)]
    )


IMAGE = (6, 5, 1)
KINDS = {
    "none": ([], InputKind(IMAGE, "float32", False)),
    "rescaling": (
        [layers.Rescaling(1 / 255)],
        InputKind(IMAGE, "float32", True),
    ),
    "applications": (
        [layers.Rescaling(1 / 127.5, offset=-1)],
        InputKind(IMAGE, "float32", True),
    ),
    "other scale": (
        [layers.Rescaling(0.1)],
        InputKind(IMAGE, "float32", False),
    ),
    "ours": (
        [cac_tf.layers.ImagePreprocessing(6, 5)],
        InputKind(IMAGE, "float32", True, (6, 5)),
    ),
    "resized": (
        [layers.Resizing(3, 4), layers.Rescaling(1 / 255)],
        InputKind(IMAGE, "float32", True, (3, 4)),
    ),
    "augmented": (
        [
            layers.RandomFlip(),
            layers.CenterCrop(4, 4),
            layers.Rescaling(1 / 255),
        ],
        InputKind(IMAGE, "float32", True),
    ),
    "normalized first": (
        [
            layers.Normalization(mean=0.0, variance=1.0),
            layers.Rescaling(1 / 255),
        ],
        InputKind(IMAGE, "float32", False),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_first_layers_say(kind):
    first, expected = KINDS[kind]
    assert kind_of_inputs(of_pixels(*first)) == expected
    # In a model within a model, as of keras.applications.
    inputs = keras.Input(IMAGE)
    inner = of_pixels(*(type(o).from_config(o.get_config()) for o in first))
    assert kind_of_inputs(keras.Model(inputs, inner(inputs))) == expected


# ---- shapes ---------------------------------------------------------------


def on_images(*first, size=IMAGE):
    """An untrained model with these first layers."""
    classifier = of_pixels(*first, size=size)
    return cac_tf.OpenSetClassifier(
        classifier, ["dark", "bright"], "max_logit", threshold=1.0
    )


def pixels(rng, shape=IMAGE, rows=16):
    return rng.integers(0, 256, (rows, *shape)).astype("uint8")


@pytest.mark.parametrize("first", [[], [layers.Rescaling(1 / 255)]])
def test_another_size_is_a_sentence_where_nothing_resizes(first, rng):
    model = on_images(*first)
    right = pixels(rng).astype("float32")
    y = np.arange(16) % 2
    for shape in ((7, 5, 1), (6, 4, 1), (6, 5, 3)):
        wrong = pixels(rng, shape).astype("float32")
        for call in (
            model.predict_scores,
            lambda x: make(model.classifier, x, y),
            lambda x: model.calibrate(x, true_positive_rate=0.5),
        ):
            with pytest.raises(
                ValueError, match=r"expects inputs of shape \(6, 5, 1\)"
            ):
                call(wrong)
    with pytest.raises(ValueError, match=r"an axis for the batch: x\[np.newa"):
        model.predict_scores(right[0])


def test_another_size_for_a_network_whose_code_is_its_own(rng):
    class Own(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.flat, self.last = layers.Flatten(), layers.Dense(2)

        def call(self, inputs):
            return self.last(self.flat(inputs))

    classifier = Own()
    classifier(pixels(rng).astype("float32"))
    model = cac_tf.OpenSetClassifier(
        classifier, ["dark", "bright"], input_shape=(6, 5, 1)
    )
    with pytest.raises(ValueError, match=r"\(6, 5, 1\); got \(7, 5, 1\)"):
        model.predict_scores(pixels(rng, (7, 5, 1)).astype("float32"))


def test_any_size_is_taken_where_something_resizes(rng):
    any_size = (None, None, 1)
    for first in (
        [cac_tf.layers.ImagePreprocessing(6, 5)],
        [layers.Resizing(6, 5)],
    ):
        model = on_images(*first, size=any_size)
        assert model.inputs_taken.shape == any_size
        assert model.inputs_taken.fixed_shape == IMAGE
        for shape in (IMAGE, (9, 7, 1), (5, 20, 1)):
            x = pixels(rng, shape)
            logits = np.asarray(model.classifier(np.float32(x)))
            np.testing.assert_allclose(
                model.predict_scores(x).logits, logits, rtol=1e-4, atol=1e-4
            )


# ---- scales ---------------------------------------------------------------


@functools.cache
def on_pixels():
    return on_images(layers.Rescaling(1 / 255))


CALLS = {
    "from_classifier": lambda m, x: make(
        m.classifier, x, np.arange(16) % 2, score="max_logit", copy=False
    ),
    "calibrate": lambda m, x: m.calibrate(x, true_positive_rate=0.5),
    "evaluate": lambda m, x: m.evaluate(x, np.arange(16) % 2),
    "predict_scores": lambda m, x: m.predict_scores(x),
    "predict_open_set": lambda m, x: m.predict_open_set(x),
}
each_call = pytest.mark.parametrize("name", CALLS)
no_class_means = pytest.mark.filterwarnings("ignore:.*anchors as centers")


@no_class_means
@each_call
def test_what_cannot_be_pixels_is_refused(name, rng):
    good = pixels(rng)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The largest pixel")
        for fine in (good, good.astype("uint16"), good.astype("float64")):
            CALLS[name](on_pixels(), fine)
    values = [(-1.0, "float32"), (256.0, "float32"), (1e30, "float32")]
    values += [(4095, "uint16"), (-5, "int16")]
    for value, dtype in values:
        x = good.astype(dtype)
        x[3, 2, 1, 0] = value
        with pytest.raises(
            ValueError, match=r"pixels in 0\.\.\.255, but .*position 3 contains"
        ):
            CALLS[name](on_pixels(), x)


@no_class_means
@each_call
def test_floats_in_0_to_1_are_warned_about_once(name, rng):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CALLS[name](on_pixels(), pixels(rng) / np.float32(255))
    texts = [
        str(w.message) for w in caught if "largest pixel" in str(w.message)
    ]
    assert len(texts) == 1, texts
    assert "0...255" in texts[0] and "Multiply them by 255" in texts[0]


def test_the_largest_pixel_is_that_of_all_batches(rng):
    """A dark batch among others is no reason to warn, nor are bytes."""
    x = pixels(rng).astype("float32")
    x[:8] = 1.0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The largest pixel")
        on_pixels().predict_scores(x, batch_size=4)
        on_pixels().predict_scores(np.ones((4, 6, 5, 1), "uint8"))
        on_pixels().predict_scores(np.zeros((4, 6, 5, 1), "float32"))


def test_inputs_that_are_no_pixels_have_any_scale(trained_blobs):
    model, x, _ = trained_blobs
    assert x.min() < 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.predict_open_set(x / 100)


# ---- sizes of batches -----------------------------------------------------


def test_rows_of_tables_come_in_large_batches():
    sizes = [
        input_checks.batch_size_for(shape)
        for shape in ((4,), (500,), (32, 32, 3), (64, 64, 3), (600, 800, 3))
    ]
    assert sizes == [4096, 1024, 128, 32, 32]


def test_a_size_that_nobody_chose(trained_blobs):
    """Nothing depends on it."""
    model, x, y = trained_blobs
    model = model.with_score("vim", x, y)
    many = np.tile(x, (30, 1))
    (one,) = {len(i) for _, _, i, _ in model.iterate_outputs(x, names=())}
    assert one == len(x)
    counts = [len(i) for _, _, i, _ in model.iterate_outputs(many, names=())]
    assert counts == [4096, len(many) - 4096]
    model.calibrate(many, true_positive_rate=0.9)
    expected = model.predict_open_set(many)
    for size in (1, 128):
        rows = slice(0, 100)
        found = model.predict_open_set(many[rows], batch_size=size)
        np.testing.assert_array_equal(found.class_id, expected.class_id[rows])
