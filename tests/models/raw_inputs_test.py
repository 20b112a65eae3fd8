# SPDX-License-Identifier: Apache-2.0
"""What a classifier takes: one array of numbers, of its shape and scale."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import cac_tf
from cac_tf.models import input_checks
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND

MAKERS = (
    cac_tf.OpenSetClassifier,
    cac_tf.OpenSetClassifier.from_classifier,
)
make_both = pytest.mark.parametrize("make", MAKERS, ids=["class", "wrap"])


# ---- kinds of models ------------------------------------------------------


@make_both
def test_models_of_several_inputs_are_refused(make):
    one, two = keras.Input([5], name="one"), keras.Input([5], name="two")
    logits = layers.Dense(3)(layers.Add()([one, two]))
    for inputs, message in (
        ([one, two], r"takes 2 inputs \(one, two\).*one array.*side by side"),
        ({"one": one, "two": two}, r"takes a dict of inputs \(one, two\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make(keras.Model(inputs, logits), list("abc"))
    alone = keras.Input([5], name="alone")
    model = keras.Model({"alone": alone}, layers.Dense(3)(alone))
    with pytest.raises(ValueError, match=r"a dict of inputs \(alone\)"):
        make(model, list("abc"))


@make_both
def test_a_list_of_one_input_is_that_input(make):
    inputs = keras.Input([5])
    outputs = layers.Dense(3)(layers.Dense(4, activation="relu")(inputs))
    model = make(keras.Model([inputs], outputs), list("abc"), score="gamma")
    x, y = blobs(np.random.default_rng(0), rows=30)
    with warnings.catch_warnings():
        # The network is not trained.
        warnings.simplefilter("ignore")
        model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    assert len(model.predict_open_set(x).label) == 30


@pytest.mark.skipif(BACKEND != "tensorflow", reason="texts need TensorFlow")
@make_both
def test_models_of_texts_are_refused(make):
    def vectorization():
        return layers.TextVectorization(
            vocabulary=["good", "bad"], output_sequence_length=4
        )

    inputs = keras.Input([1], dtype="string")
    x = layers.Embedding(9, 4)(vectorization()(inputs))
    logits = layers.Dense(2)(layers.Flatten()(x))
    message = "takes texts; an OpenSetClassifier takes numbers. Apply"
    with pytest.raises(ValueError, match=message):
        make(keras.Model(inputs, logits), ["a", "b"])
    unbuilt = keras.Sequential(
        [vectorization(), layers.Embedding(9, 4), layers.Dense(2)]
    )
    with pytest.raises(ValueError, match=message):
        make(unbuilt, ["a", "b"])
    ids = keras.Input([4], dtype="int32")
    x = layers.Flatten()(layers.Embedding(9, 4)(ids))
    backbone = keras.Model(ids, layers.Dense(2)(x))
    with pytest.raises(ValueError, match="The preprocessing takes texts"):
        make(backbone, ["a", "b"], preprocessing=vectorization())


def test_data_of_another_kind(trained_blobs):
    model, x, y = trained_blobs
    for data, message in (
        ("photo.jpg", r"name of a file; got 'photo.jpg'.*load_img\(path\)"),
        ({"x": x}, r"not a dict \(x\)"),
        (np.array([["a"] * 5]), "array of numbers; got the type <U1"),
        (np.array([[None] * 5]), "array of numbers; got the type object"),
    ):
        for call in (
            lambda data: model.predict_open_set(data),
            lambda data: model.predict_scores(data),
            lambda data: model.fit_centers(data, [0]),
            lambda data: model.calibrate(data, true_positive_rate=0.9),
            lambda data: small_classifier().fit(data, np.zeros(1, int)),
        ):
            with pytest.raises(ValueError, match=message):
                call(data)
    # Lists of rows are arrays.
    listed, array = map(model.predict_open_set, (x[:3].tolist(), x[:3]))
    np.testing.assert_array_equal(listed.class_id, array.class_id)


# ---- shapes ---------------------------------------------------------------


def on_images(preprocessing=None, size=(6, 5, 1)):
    backbone = keras.Sequential(
        [keras.Input(size), layers.Flatten(), layers.Dense(2)]
    )
    model = cac_tf.OpenSetClassifier(
        backbone, ["dark", "bright"], preprocessing=preprocessing
    )
    model.compile("sgd", cac_tf.losses.CACLoss())
    return model


def pixels(rng, shape=(6, 5, 1), rows=16):
    return rng.integers(0, 256, (rows, *shape)).astype("uint8")


@pytest.mark.parametrize(
    "preprocessing", [None, layers.Rescaling(1 / 255), layers.Identity()]
)
def test_another_size_is_a_sentence_where_nothing_resizes(preprocessing, rng):
    model = on_images(preprocessing)
    right = pixels(rng).astype("float32")
    # Before the model is built, and after.
    for _ in range(2):
        for shape in ((7, 5, 1), (6, 4, 1)):
            wrong = pixels(rng, shape).astype("float32")
            for call in (
                lambda x: model.predict_scores(x),
                lambda x: model.fit_centers(x, np.zeros(16, int)),
                lambda x: model.fit(x, np.arange(16) % 2, verbose=0),
            ):
                with pytest.raises(
                    ValueError, match=r"takes inputs of shape \(6, 5, 1\)"
                ):
                    call(wrong)
        model.predict_scores(right)
    with pytest.raises(ValueError, match=r"an axis for the batch: x\[np.newa"):
        model.predict_scores(right[0])


@pytest.mark.filterwarnings("ignore:The backbone.s last layer")
def test_another_size_for_a_network_whose_code_is_its_own(rng):
    @keras.saving.register_keras_serializable(package="RawInputsTest")
    class Own(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.flat, self.last = layers.Flatten(), layers.Dense(2)

        def call(self, inputs):
            return self.last(self.flat(inputs))

    model = cac_tf.OpenSetClassifier(Own(), ["dark", "bright"])
    model.predict_scores(pixels(rng).astype("float32"))
    with pytest.raises(ValueError, match=r"of shape \(7, 5, 1\)"):
        model.predict_scores(pixels(rng, (7, 5, 1)).astype("float32"))


def test_any_size_is_taken_where_something_resizes(rng):
    for preprocessing in (
        cac_tf.layers.ImagePreprocessing(6, 5),
        layers.Resizing(6, 5),
    ):
        model = on_images(preprocessing)
        for shape in ((6, 5, 1), (9, 7, 1), (5, 20, 1)):
            assert len(model.predict_scores(pixels(rng, shape)).logits) == 16
    inputs = keras.Input([None, None, 1])
    pooled = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(inputs))
    model = cac_tf.OpenSetClassifier(
        keras.Model(inputs, layers.Dense(2)(pooled)), ["a", "b"]
    )
    for shape in ((6, 5, 1), (9, 7, 1)):
        assert len(model.predict_scores(pixels(rng, shape)).logits) == 16


# ---- scales ---------------------------------------------------------------


def calls_on_pixels():
    y = np.arange(16) % 2
    return {
        "fit": lambda m, x: m.fit(x, y, verbose=0),
        "fit batches": lambda m, x: m.fit(batches(x, y), verbose=0),
        "validation": lambda m, x: m.fit(
            np.full((16, 6, 5, 1), 9, "uint8"),
            y,
            validation_data=(x, y),
            verbose=0,
        ),
        "train_on_batch": lambda m, x: m.train_on_batch(x, y),
        "fit_centers": lambda m, x: m.fit_centers(x, y),
        "calibrate": lambda m, x: m.calibrate(x, true_positive_rate=0.5),
        "predict_scores": lambda m, x: m.predict_scores(x),
        "predict_open_set": lambda m, x: m.predict_open_set(x),
    }


def batches(x, y):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return x[4 * i : 4 * i + 4], y[4 * i : 4 * i + 4]

    return Batches(workers=0)


@pytest.fixture
def on_pixels():
    model = on_images(cac_tf.layers.ImagePreprocessing(6, 5, 0.5, 0.25))
    model.build((None, 6, 5, 1))
    return model


@pytest.mark.filterwarnings("ignore:These classes keep")
@pytest.mark.parametrize("name", calls_on_pixels())
def test_what_cannot_be_pixels_is_refused(name, on_pixels, rng):
    call = calls_on_pixels()[name]
    good = pixels(rng)
    for fine in (good, good.astype("uint16"), good.astype("float64")):
        on_pixels.set_threshold(1.0)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="The largest pixel")
            call(on_pixels, fine)
    values = [(-1.0, "float32"), (256.0, "float32"), (1e30, "float32")]
    values += [(4095, "uint16"), (-5, "int16")]
    if name == "fit batches" and BACKEND == "jax":
        # Keras' models are unusable there after an error within an epoch.
        values = values[:1]
    for value, dtype in values:
        x = good.astype(dtype)
        x[3, 2, 1, 0] = value
        on_pixels.set_threshold(1.0)
        with pytest.raises(
            ValueError, match=r"pixels in 0\.\.\.255, but .*position 3 holds"
        ):
            call(on_pixels, x)


@pytest.mark.filterwarnings("ignore:These classes keep")
@pytest.mark.parametrize(
    "name", [n for n in calls_on_pixels() if n != "train_on_batch"]
)
def test_floats_in_0_to_1_are_warned_about_once(name, on_pixels, rng):
    on_pixels.set_threshold(1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls_on_pixels()[name](on_pixels, pixels(rng) / np.float32(255))
    texts = [
        str(w.message) for w in caught if "largest pixel" in str(w.message)
    ]
    assert len(texts) == 1, texts
    assert "0...255" in texts[0] and "Multiply them by 255" in texts[0]


def test_the_largest_pixel_is_that_of_all_batches(on_pixels, rng):
    """A dark batch among others is no reason to warn, nor are bytes."""
    x = pixels(rng).astype("float32")
    x[:8] = 1.0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The largest pixel")
        on_pixels.predict_scores(x, batch_size=4)
        on_pixels.predict_scores(np.ones((4, 6, 5, 1), "uint8"))
        on_pixels.predict_scores(np.zeros((4, 6, 5, 1), "float32"))


def test_wrapped_classifiers_check_pixels_where_the_preprocessing_is_ours(rng):
    classifier = keras.Sequential(
        [
            keras.Input([6, 5, 1]),
            layers.Flatten(),
            layers.Dense(4),
            layers.Dense(2, activation="softmax"),
        ]
    )
    x = -np.ones((4, 6, 5, 1), "float32")
    make = cac_tf.OpenSetClassifier.from_classifier
    make(classifier, ["a", "b"], "max_logit").predict_scores(x)
    ours = make(
        classifier,
        ["a", "b"],
        "max_logit",
        preprocessing=cac_tf.layers.ImagePreprocessing(6, 5),
    )
    with pytest.raises(ValueError, match=r"pixels in 0\.\.\.255"):
        ours.predict_scores(x)


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
    model = model.with_score("vim")
    many = np.tile(x, (30, 1))
    (one,) = {len(i) for _, _, i, _ in model.iterate_outputs(x, names=())}
    assert one == len(x)
    counts = [len(i) for _, _, i, _ in model.iterate_outputs(many, names=())]
    assert counts == [4096, len(many) - 4096]
    model.fit_score(x, y)
    model.calibrate(many, true_positive_rate=0.9)
    expected = model.predict_open_set(many)
    for size in (1, 128):
        rows = slice(0, 100)
        found = model.predict_open_set(many[rows], batch_size=size)
        np.testing.assert_array_equal(found.class_id, expected.class_id[rows])
