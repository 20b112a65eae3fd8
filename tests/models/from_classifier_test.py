# SPDX-License-Identifier: Apache-2.0
"""Models made of trained classifiers: copies, and what a classifier holds."""

import functools
import pickle
import warnings

import keras
import numpy as np
import pytest
import sklearn.linear_model
from keras import layers
from scipy import special

import cac_tf
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND

make = cac_tf.OpenSetClassifier.from_classifier
ON_TENSORFLOW = BACKEND == "tensorflow"


def data():
    return blobs(np.random.default_rng(0))


def two_layers(activation=None):
    return small_classifier(
        network=keras.Sequential(
            [
                keras.Input([5]),
                layers.Dense(8, activation="relu", name="hidden"),
                layers.Dense(3, activation=activation, name="out"),
            ]
        )
    )


@functools.cache
def weights():
    """Those of a trained classifier of two layers."""
    keras.utils.set_random_seed(0)
    classifier = two_layers()
    classifier.fit(*data(), epochs=10, verbose=0)
    return classifier.get_weights()


# ---- copies, and classifiers that are shared ------------------------------


def train_wrongly(classifier, x, y):
    """On TensorFlow by a loop of one's own, which tells nobody."""
    y = (y + 1) % 3
    if not ON_TENSORFLOW:
        classifier.fit(x, y, epochs=5, verbose=0)
        return
    import tensorflow as tf

    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    for _ in range(40):
        with tf.GradientTape() as tape:
            loss = classifier.loss(y, classifier(x, training=True))
        weights = classifier.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)


def test_training_the_classifier_on_changes_no_model():
    x, y = data()
    classifier = two_layers()
    classifier.set_weights(weights())
    models = [make(classifier, (x, y), score=one) for one in ("gamma", "vim")]
    before = []
    for model in models:
        model.calibrate(x, true_positive_rate=0.9)
        before.append(model.predict_open_set(x))
        assert before[-1].is_unknown.mean() == pytest.approx(0.1, abs=0.02)
        assert not model.is_shared and model.trainable_weights == []
    train_wrongly(classifier, x, y)
    assert classifier.evaluate(x, y, verbose=0)[1] < 0.5
    for model, expected in zip(models, before, strict=True):
        after = model.predict_open_set(x)
        np.testing.assert_array_equal(
            after.unknown_score, expected.unknown_score
        )
        np.testing.assert_array_equal(after.class_id, expected.class_id)
    assert classifier.trainable_weights


class Subclassed(keras.Model):
    """Layers that are called by code of its own; there is no config."""

    def __init__(self, units, activation=None):
        super().__init__()
        self.hidden = layers.Dense(8, activation="relu")
        self.out = layers.Dense(units[0], activation=activation)

    def call(self, inputs):
        return self.out(self.hidden(inputs))

    def get_config(self):
        raise NotImplementedError("It takes a list of units.")


@keras.saving.register_keras_serializable(package="CacTfFromClassifier")
class WithConfig(Subclassed):
    def get_config(self):
        return {"units": [3]}


@pytest.mark.parametrize("kind", ["copy=False", "no config"])
def test_a_shared_classifier_that_is_trained_on_is_noticed(kind, tmp_path):
    x, y = data()
    options = {"copy": False}
    classifier = two_layers()
    if kind == "no config":
        options = {}
        classifier = small_classifier(network=Subclassed([3]))
        classifier(x)
    classifier.set_weights(weights())
    model = make(classifier, (x, y), score="min_distance", **options)
    assert model.is_shared and model.classifier.trainable_weights
    model.calibrate(x, true_positive_rate=0.9)
    before = model.predict_open_set(x).unknown_score
    kept = tmp_path / "kept.weights.h5"
    model.save_weights(kept)
    train_wrongly(classifier, x, y)
    calls = (
        lambda: model.predict_open_set(x),
        lambda: model.predict_scores(x),
        lambda: model.predict(x, verbose=0),
        lambda: model.evaluate(x, y),
        lambda: model.calibrate(x, true_positive_rate=0.9),
        lambda: model.with_score("max_logit"),
        lambda: model.rename({"1": "one"}),
        lambda: model.fit_scores([], x, y),
        lambda: model.save(tmp_path / "model.keras"),
        lambda: model.save_weights(tmp_path / "model.weights.h5"),
        lambda: model.export(tmp_path / "1"),
    )
    for call in calls:
        with pytest.raises(
            RuntimeError, match="weights have changed.*create the model again"
        ):
            call()
    if kind == "copy=False":
        with pytest.raises(RuntimeError, match="weights have changed since"):
            pickle.dumps(model)
    # Weights that are loaded are those of centers, score and threshold.
    model.load_weights(kept)
    np.testing.assert_array_equal(
        model.predict_open_set(x).unknown_score, before
    )
    train_wrongly(classifier, x, y)
    assert not (tmp_path / "model.keras").exists()
    assert not (tmp_path / "1").exists()
    # The weights themselves are what counts.
    classifier.set_weights(weights())
    np.testing.assert_array_equal(
        model.predict_open_set(x).unknown_score, before
    )


def test_a_subclassed_model_with_a_config_is_copied(tmp_path):
    x, y = data()
    classifier = small_classifier(network=WithConfig([3]))
    classifier(x)
    classifier.set_weights(weights())
    model = make(classifier, (x, y), class_names=list("abc"))
    # Its features are not visible, so the score is one of the logits.
    assert model.score.name == "min_distance" and not model.is_shared
    outputs = model.predict(x, verbose=0)
    assert "features" not in outputs
    np.testing.assert_allclose(
        outputs["logits"], classifier.predict(x, verbose=0), rtol=1e-5
    )
    model.calibrate(x, true_positive_rate=0.9)
    before = model.predict_open_set(x)
    train_wrongly(classifier, x, y)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, before.class_id
    )
    with pytest.raises(ValueError, match="features of WithConfig .* cannot be"):
        model.with_score("vim", (x, y))


# ---- kinds of classifiers -------------------------------------------------


def functional(activation=None):
    inputs = keras.Input([5])
    x = layers.Dense(8, activation="relu", name="hidden")(inputs)
    x = layers.Dropout(0.5)(x)
    x = layers.Dense(3, activation=activation, name="out")(x)
    return keras.Model(inputs, x)


def with_activation(activation):
    model = functional()
    return keras.Model(model.input, layers.Activation(activation)(model.output))


def nested(activation):
    inputs = keras.Input([5])
    return keras.Model(inputs, functional(activation)(inputs))


KINDS = {
    "functional": functional,
    "sequential": two_layers,
    "activation": with_activation,
    "nested": nested,
}


@pytest.mark.parametrize("kind", KINDS if ON_TENSORFLOW else ["functional"])
@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_logits_and_features_of_a_classifier(kind, activation):
    x, y = data()
    classifier = KINDS[kind](activation)
    classifier.set_weights(weights())
    before = classifier.predict(x, verbose=0)
    model = make(
        classifier, (x, y), class_names=list("abc"), validation_data=(x, y)
    )
    assert model.score.name == "vim"
    out = model.predict(x, verbose=0)
    kernel, bias, last, last_bias = map(np.float64, weights())
    features = np.maximum(np.float64(x) @ kernel + bias, 0.0)
    np.testing.assert_allclose(out["features"], features, atol=1e-5)
    logits = features @ last + last_bias
    np.testing.assert_allclose(out["logits"], logits, atol=1e-4)
    if activation == "softmax":
        np.testing.assert_allclose(
            special.softmax(logits, axis=1), before, atol=1e-5
        )
    # 95 % of the validation data are accepted.
    assert np.sum(out["class_id"] >= 0) == np.ceil(0.95 * 241)
    np.testing.assert_array_equal(classifier.predict(x, verbose=0), before)


def test_validation_data_without_labels():
    """An array of known inputs alone, and a data set of batches."""
    x, y = data()
    classifier = KINDS["functional"]("linear")
    expected = make(classifier, (x, y), validation_data=(x, y)).threshold
    for known in (x, [(x[:100], y[:100]), (x[100:], y[100:])]):
        model = make(classifier, (x, y), validation_data=known)
        assert model.threshold == pytest.approx(expected, rel=1e-5)
    if ON_TENSORFLOW:
        import tensorflow as tf

        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
        model = make(classifier, (x, y), validation_data=batches)
        assert model.threshold == pytest.approx(expected, rel=1e-5)


class Counts(cac_tf.scores.Score):
    """How many examples it was fitted to."""

    NAME, READS, IS_FITTED_TO_DATA = "counts", ("logits",), True

    def start(self, context):
        return []

    def update(self, kept, batch):
        kept.append(len(batch.labels))

    def finish(self, kept, context):
        return {"rows": sum(kept)}

    def call(self, logits, *, rows):
        return logits[:, 0] * 0 + rows


class CountsHeldOut(Counts):
    WANTS_HELD_OUT_DATA = True


def test_the_data_that_a_score_is_fitted_to():
    """Training data, or those held out for one that wants them, or its own."""
    x, y = data()
    rows = {
        "data": (x[:100], y[:100]),
        "validation_data": (x[100:150], y[100:150]),
        "score_data": (x[150:], y[150:]),
    }
    for score, names, expected in (
        (Counts, ["data"], 100),
        (Counts, ["data", "validation_data"], 100),
        (Counts, ["data", "validation_data", "score_data"], 90),
        (CountsHeldOut, ["data"], 100),
        (CountsHeldOut, ["data", "validation_data"], 50),
        (CountsHeldOut, ["data", "validation_data", "score_data"], 90),
    ):
        classifier = two_layers()
        classifier.set_weights(weights())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(
                classifier, **{n: rows[n] for n in names}, score=score()
            )
        assert float(model.statistics["rows"]) == expected
        assert (model.threshold is None) == (len(names) == 1)


def test_adapted_normalization_inside_a_classifier(tmp_path):
    """What a layer has learnt besides weights goes with the copy."""
    x, y = data()
    x = 50 * x + 7
    normalize = layers.Normalization()
    normalize.adapt(x)
    classifier = small_classifier(
        network=keras.Sequential([keras.Input([5]), normalize, functional()])
    )
    classifier.fit(x, y, epochs=3, verbose=0)
    model = make(classifier, (x, y), class_names=list("abc"), score="gamma")
    assert not model.inputs_taken.are_pixels
    logits = classifier.predict(x, verbose=0)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(
        logits, classifier.layers[-1].predict(standard, verbose=0), atol=1e-4
    )
    np.testing.assert_allclose(model.predict_scores(x).logits, logits, 1e-5)
    normalize.adapt(x + 1000)
    np.testing.assert_allclose(model.predict_scores(x).logits, logits, 1e-5)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict_scores(x).logits, logits, 1e-5)


def test_a_classifier_whose_input_shape_is_that_of_the_data():
    x, y = data()
    classifier = keras.Sequential([layers.Dense(8), layers.Dense(3)])
    classifier.compile("sgd", cac_tf.losses.CACLoss())
    classifier.fit(x, y, verbose=0)
    model = make(classifier, (x, y), score="gamma", centers="anchors")
    assert model.inputs_taken.shape == (5,)
    np.testing.assert_allclose(
        model.predict_scores(x).logits,
        classifier.predict(x, verbose=0),
        rtol=1e-5,
        atol=1e-6,
    )


def test_an_iterator_is_read_from_its_first_batch_on():
    """Also where that batch tells the shape of the inputs."""
    x, y = data()

    def batches():
        return ((x[i : i + 60], y[i : i + 60]) for i in range(0, 240, 60))

    classifier = keras.Sequential([layers.Dense(8), layers.Dense(3)])
    model = make(classifier, batches(), score="knn", copy=False)
    expected = make(classifier, (x, y), score="knn", copy=False)
    np.testing.assert_allclose(model.centers, expected.centers, rtol=1e-5)
    np.testing.assert_allclose(
        model.statistics["bank"], expected.statistics["bank"], atol=1e-6
    )
    # Its distances to the centers are known after the first pass only.
    for options in (
        {"data": batches(), "score": OfCenters()},
        {
            "data": (x, y),
            "score": "class_z_score",
            "validation_data": batches(),
        },
    ):
        with pytest.raises(ValueError, match="second pass.*pass arrays or a d"):
            make(classifier, **options, copy=False)


class OfCenters(cac_tf.scores.Score):
    """A score that is fitted to distances."""

    NAME, READS, IS_FITTED_TO_DATA = "of_centers", ("distances",), True


class TimesTwo(keras.Model):
    """A functional model with a `call` of its own."""

    def __init__(self):
        inputs = keras.Input([5])
        super().__init__(inputs, layers.Dense(3)(inputs))

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training=training)


def test_a_functional_model_with_a_call_of_its_own():
    x, _ = data()
    classifier = TimesTwo()
    model = cac_tf.OpenSetClassifier(classifier, list("abc"))
    np.testing.assert_allclose(
        model.predict_scores(x).logits, np.asarray(classifier(x)), rtol=1e-5
    )


def test_half_precision():
    """Everything behind the logits is float32."""
    x, y = data()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        classifier = keras.Sequential(
            [keras.Input([5]), layers.Dense(8), layers.Dense(3)]
        )
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.warns(UserWarning, match="last layer computes in bfloat16"):
        model = make(classifier, (x, y), score="gamma", centers="anchors")
    found = model.predict_scores(x)
    assert found.logits.dtype == found.gamma.dtype == np.float32
    expected = np.linalg.norm(
        np.float64(found.logits)[:, None] - 10 * np.eye(3), axis=-1
    )
    np.testing.assert_allclose(found.distances, expected, rtol=1e-6)


# ---- what is refused ------------------------------------------------------


def test_data_that_are_refused():
    x, y = data()
    classifier = two_layers()
    for given, message in (
        ((x,), "need labels: pass y"),
        ((x[:0], y[:0]), "must contain at least one example"),
        ((x, y[:-1]), "239 labels for 240"),
        ((x, y + 1), "Label 3 at position 2 is out of range"),
        ((x, y - 1), "Label -1 at position 0 is out of range"),
        ((x, y + 0.5), "Label 0.5 at position 0 is not a whole number"),
        ((x, np.eye(3)[y]), "One-hot"),
        ((x, np.array(list("abc"))[y]), "whole numbers"),
        ((x[:, :4], y), r"expects inputs of shape \(5,\); got \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make(classifier, *given, score="gamma")
    classifier.set_weights(weights())
    with pytest.raises(ValueError, match="class '2' has 1"):
        few = (y != 2) | (np.cumsum(y == 2) == 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(classifier, (x[few], y[few]), score="class_z_score")


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (
            [layers.Dense(3, activation="softmax", name="p"), layers.Flatten()],
            "The softmax 'p' at the end of the classifier is followed",
        ),
        (
            [layers.EinsumDense("ab,bc->ac", 3, activation="softmax")],
            "is part of the layer .* a EinsumDense",
        ),
        ([layers.Dense(4)], "4 outputs for 3 class names"),
    ],
)
def test_ends_that_are_refused(last, message):
    classifier = keras.Sequential([keras.Input([5]), *last])
    with pytest.raises(ValueError, match=message):
        make(classifier, data(), class_names=list("abc"))


def test_probabilities_of_hidden_code_are_found_out():
    x, y = data()
    for activation in ("softmax", "log_softmax"):
        classifier = Subclassed([3], activation)
        classifier(x)
        with pytest.raises(
            ValueError, match="returns (log-)?probabilities.*rem"
        ):
            make(classifier, (x, y))


def test_what_is_no_classifier():
    with pytest.raises(ValueError, match="must be a Keras model; got Dense"):
        make(layers.Dense(3), data())
    with pytest.raises(ValueError, match=r"got LogisticRegr.*cac_tf\.sklearn"):
        make(sklearn.linear_model.LogisticRegression(), data())


def test_features_that_cannot_be_found():
    x = np.ones((6, 5, 1), "float32")
    classifier = keras.Sequential(
        [
            keras.Input([5, 1]),
            layers.Conv1D(3, 2, name="map"),
            layers.GlobalAveragePooling1D(name="pool"),
        ]
    )
    y = np.arange(6) % 3
    for options, message in (
        ({"score": "vim"}, "features_layer=; the layers are: .*map, pool"),
        (
            {"features_layer": "nothing"},
            "'nothing'.*the layers are: .*map, pool",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(classifier, (x, y), **options)
    with pytest.raises(ValueError, match=r"calls its layers \(hidden, out\)"):
        named = Subclassed([3])
        named.hidden.name, named.out.name = "hidden", "out"
        named(np.ones((1, 5), "float32"))
        make(named, data(), score="vim")
    inputs = keras.Input([4, 2])
    outputs, *_ = layers.LSTM(3, return_state=True, name="lstm")(inputs)
    classifier = keras.Model(inputs, layers.Dense(3)(outputs))
    with pytest.raises(ValueError, match="'lstm' has 3 outputs"):
        cac_tf.OpenSetClassifier(classifier, list("abc"), features_layer="lstm")
