# SPDX-License-Identifier: Apache-2.0
"""Scores inside of a classifier: fitted, calibrated, saved, exported."""

import functools

import keras
import numpy as np
import pytest
from scipy import special

import cac_tf
from cac_tf import scores
from cac_tf.models.features import with_features
from tests import execution
from tests.conftest import blobs
from tests.conftest import small_classifier

# Compiling takes seconds on JAX: there, one of each kind of score.
IS_TENSORFLOW = execution.BACKEND == "tensorflow"
NAMES = (
    scores.common_names()
    if IS_TENSORFLOW
    else ("class_z_score", "gamma", "nnguide")
)
# What does not depend on the backend.
no_backend = pytest.mark.skipif(
    not IS_TENSORFLOW, reason="tested on TensorFlow, the same everywhere"
)
FITTED = [n for n in scores.common_names() if scores.get(n).IS_FITTED_TO_DATA]


def network(width=5, num_classes=3):
    """Two dense layers: features of a width of their own."""
    return keras.Sequential(
        [
            keras.Input([width]),
            keras.layers.Dense(8, activation="relu", name="hidden"),
            keras.layers.Dense(num_classes, name="logits"),
        ]
    )


def noisy_blobs(seed=0):
    """Apart, but not so far that all scores of a class are alike."""
    x, y = blobs(np.random.default_rng(seed))
    noise = np.random.default_rng(seed + 100).standard_normal(x.shape)
    return np.float32(x + 0.5 * noise), y


def outputs_of(model, x, names, **options):
    """Outputs by name, of all inputs in one batch."""
    ((outputs, *_),) = model.iterate_outputs(
        x, batch_size=1000, names=names, **options
    )
    return outputs


@functools.cache
def trained_once():
    keras.utils.set_random_seed(0)
    x, y = noisy_blobs()
    model = small_classifier(backbone=network())
    model.fit(x, y, epochs=15, verbose=0)
    return model, x, y


def trained(score):
    """A trained model with this score, not fitted; inputs and labels."""
    model, x, y = trained_once()
    return model.with_score(score), x, y


@pytest.mark.parametrize("name", NAMES)
def test_fit_calibrate_decide_save_and_load(name, tmp_path):
    model, x, y = trained(name)
    if name in FITTED:
        for step in (
            lambda: model.predict_scores(x),
            lambda: model.calibrate(x, true_positive_rate=0.9),
        ):
            with pytest.raises(ValueError, match="call fit_centers"):
                step()
    model.fit_centers(x, y)
    # An example of the bank is its own neighbour: others are asked.
    x, _ = noisy_blobs(1)
    model.calibrate(x, true_positive_rate=0.9)
    out = model.predict_open_set(x)
    assert np.mean(~out.is_unknown) == pytest.approx(0.9, abs=0.02)
    found = model.predict_scores(x)
    rule = model.score
    outputs = outputs_of(model, x, (*rule.READS, "logits", "distances"))
    np.testing.assert_allclose(
        found.unknown_score,
        rule.of_arrays(*(outputs[n] for n in rule.READS)),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_array_equal(
        found.predicted_class_id, np.asarray(rule.predicted_class(outputs))
    )
    kept = ~out.is_unknown
    np.testing.assert_array_equal(
        out.class_id[kept], found.predicted_class_id[kept]
    )
    assert (out.class_id[~kept] == -1).all()
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.score.name == name and again.score.is_fitted
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score,
        found.unknown_score,
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", FITTED if IS_TENSORFLOW else ["vim"])
def test_neither_batches_nor_order_matter(name):
    """One example at a time, in batches, at once, backwards: the same."""
    model, x, y = trained(name)
    found = []
    for rows, batch_size in (
        (np.arange(len(x)), len(x)),
        (np.arange(len(x)), 37),
        (np.arange(len(x))[::-1], 64),
        (np.random.default_rng(2).permutation(len(x)), 5),
    ):
        model.fit_centers(x[rows], y[rows], batch_size=batch_size)
        statistics = {
            w.name: np.float64(w) for w in model.score.weights if w.shape
        }
        if name == "vim":
            # Any basis of the residual space is as good.
            basis = statistics["residual_space"]
            statistics["residual_space"] = basis @ basis.T
        found.append((statistics, model.predict_scores(x).unknown_score))
    for statistics, unknown_score in found[1:]:
        for key, value in found[0][0].items():
            size = np.abs(value).max()
            np.testing.assert_allclose(
                statistics[key], value, rtol=1e-5, atol=1e-5 * size
            )
        np.testing.assert_allclose(
            unknown_score, found[0][1], rtol=1e-5, atol=2e-5
        )


def test_the_features_are_what_goes_into_the_last_layer():
    model, x, y = trained("vim")
    outputs = outputs_of(model, x, ("logits", "features"))
    # Logits, distances and gamma are always there.
    assert sorted(outputs) == ["distances", "features", "gamma", "logits"]
    hidden, last = model.backbone.layers
    expected = np.maximum(x @ hidden.kernel + hidden.bias, 0.0)
    np.testing.assert_allclose(outputs["features"], expected, atol=1e-5)
    np.testing.assert_allclose(
        outputs["logits"], expected @ last.kernel + last.bias, atol=1e-4
    )


@no_backend
def test_a_layer_that_is_named_gives_the_features(tmp_path):
    backbone = keras.Sequential(
        [
            keras.Input([8, 6, 1]),
            keras.layers.Conv2D(4, 3, name="map"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model = cac_tf.OpenSetClassifier(
        backbone, ["a", "b", "c"], score="mahalanobis", features_layer="map"
    )
    x = np.float32(np.random.default_rng(0).random((90, 8, 6, 1)))
    model.build(x.shape)
    model.fit_score(x, np.arange(90) % 3)
    outputs = outputs_of(model, x, ["features"])
    # Means over the places of a map.
    expected = np.asarray(backbone.get_layer("map").output.shape)
    assert expected.tolist() == [None, 6, 4, 4]
    maps = keras.Model(backbone.inputs, backbone.get_layer("map").output)(x)
    np.testing.assert_allclose(
        outputs["features"], np.mean(maps, axis=(1, 2)), atol=1e-6
    )
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.features_layer == "map"
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score,
        model.predict_scores(x).unknown_score,
        rtol=1e-5,
    )


@no_backend
def test_the_layer_that_is_named_is_that_of_the_graph():
    """Not the layer's first call, wherever that was."""
    hidden = keras.layers.Dense(8, activation="relu", name="hidden")
    elsewhere = keras.Input([5])
    keras.Model(elsewhere, hidden(elsewhere))
    backbone = keras.Sequential()
    backbone.add(keras.Input([5]))
    backbone.add(hidden)
    backbone.add(keras.layers.Dense(3, name="out"))
    both, last = with_features(backbone, "hidden")
    assert last is backbone.layers[-1]
    x = np.ones((2, 5), "float32")
    features, _ = both(x)
    np.testing.assert_allclose(features, hidden(x))
    again = keras.layers.Dense(8, name="again")
    inputs = keras.Input([8])
    outputs = keras.layers.Dense(3)(again(again(inputs)))
    with pytest.raises(ValueError, match="More than one call of 'again'"):
        with_features(keras.Model(inputs, outputs), "again")


class Subclassed(keras.Model):
    """A network whose layers are called by code of its own."""

    def __init__(self, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(8, name="hidden")
        self.out = keras.layers.Dense(3, activation=activation, name="out")

    def call(self, inputs):
        return self.out(self.hidden(inputs))


def test_features_that_cannot_be_found():
    rest = [keras.layers.Conv1D(3, 2, name="map")]
    rest.append(keras.layers.GlobalAveragePooling1D(name="pool"))
    no_dense = keras.Sequential([keras.Input([5, 1]), *rest])
    model = cac_tf.OpenSetClassifier(no_dense, ["a", "b", "c"], score="vim")
    with pytest.raises(ValueError, match="features_layer=; there are: map, po"):
        model.build((None, 5, 1))
    assert not model.has_features
    model = cac_tf.OpenSetClassifier(
        network(), ["a", "b", "c"], features_layer="nothing"
    )
    with pytest.raises(ValueError, match="'nothing'.*there are: hidden, log"):
        model.build((None, 5))
    model = cac_tf.OpenSetClassifier(Subclassed(), ["a", "b", "c"], score="vim")
    with pytest.raises(ValueError, match=r"layers \(hidden, out\) are called"):
        model.build((None, 5))


@no_backend
def test_training_again_forgets_the_statistics():
    x, y = noisy_blobs()
    for name in ("openmax", "vim"):
        model = small_classifier(backbone=network(), score=name)
        model.fit(x, y, epochs=5, verbose=0)
        model.fit_centers(x, y)
        assert model.score.is_fitted
        model.fit(x, y, epochs=1, verbose=0)
        assert not model.score.is_fitted


def test_a_bank_of_another_size():
    """Compiled functions see what was fitted last."""
    model, x, y = trained("knn")
    model.fit_centers(x[:100], y[:100])
    assert model.predict_scores(x).unknown_score.max() > 1e-5
    model.fit_centers(x, y)
    # Each is its own neighbour.
    assert model.predict_scores(x).unknown_score.max() < 1e-6


def test_fit_score_bad_input():
    model, x, y = trained("openmax")
    with pytest.raises(ValueError, match="fit_score needs labels"):
        model.fit_score(x)
    with pytest.raises(
        ValueError, match="fit_score needs at least one example"
    ):
        model.fit_score(x[:0], y[:0])
    with pytest.raises(ValueError, match="out of range"):
        model.fit_score(x, y + 1)


@no_backend
def test_a_class_with_one_example_leaves_the_model_as_it_was():
    for name, message in (
        ("class_z_score", "class 'class 2' has 1"),
        ("openmax", "class 'class 2' has 1"),
    ):
        model, x, y = trained(name)
        model.fit_centers(x, y)
        theta = model.calibrate(x, true_positive_rate=0.9)
        before = [np.asarray(w) for w in model.weights]
        few = (y != 2) | (np.cumsum(y == 2) == 1)
        with pytest.raises(ValueError, match=message):
            model.fit_centers(x[few], y[few])
        for one, other in zip(before, model.weights, strict=True):
            np.testing.assert_array_equal(one, other)
        assert model.threshold == theta
    for name in ("mahalanobis", "vim", "nnguide"):
        model, x, y = trained(name)
        model.fit_centers(x[few], y[few])
        assert np.isfinite(model.predict_scores(x).unknown_score).all()


def test_scores_that_cannot_be_fitted_leave_the_others_alone():
    model, x, y = trained("gamma")
    rules = [scores.get(name) for name in scores.common_names()]
    rules.append(scores.KNN(10**6, 10**6, name="too many"))
    problems = model.fit_scores(rules, x, y)
    assert list(problems) == ["too many"]
    assert "1000000 neighbours" in str(problems["too many"])
    assert all(rule.is_fitted for rule in rules[:-1])


def test_a_fit_of_the_own_score_makes_theta_invalid():
    model, x, y = trained("mahalanobis")
    model.fit_score(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    assert model.fit_scores([scores.Energy()], x, y) == {}
    assert model.threshold is not None
    assert model.fit_scores([model.score], x, y) == {}
    assert model.threshold is None


def test_a_score_is_not_shared():
    """What one model learns with a score leaves another one alone."""
    model, x, y = trained("nnguide")
    model.fit_score(x, y)
    before = model.predict_scores(x).unknown_score
    other = model.with_score(model.score)
    assert other.score.is_fitted
    np.testing.assert_allclose(
        other.predict_scores(x).unknown_score, before, rtol=1e-6
    )
    other.fit_score(x[:60], y[:60])
    np.testing.assert_array_equal(model.predict_scores(x).unknown_score, before)
    assert np.abs(other.predict_scores(x).unknown_score - before).max() > 1e-3
    # Fitted by itself, the score of a compiled model is the one that counts.
    outputs = outputs_of(model, x[:90], ("logits", "features"))
    model.score.fit(
        y[:90], logits=outputs["logits"], features=outputs["features"]
    )
    assert np.abs(model.predict_scores(x).unknown_score - before).max() > 1e-3


def test_with_score():
    model, x, y = trained("gamma")
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    other = model.with_score("max_logit")
    assert model.score.name == "gamma"
    assert other.threshold is None
    np.testing.assert_array_equal(other.centers, model.centers)
    one, two = model.predict_scores(x), other.predict_scores(x)
    np.testing.assert_allclose(two.distances, one.distances, rtol=1e-6)
    np.testing.assert_allclose(
        two.unknown_score, -one.logits.max(axis=1), rtol=1e-6
    )


@no_backend
def test_with_score_keeps_what_preprocessing_has_learnt():
    x, y = blobs(np.random.default_rng(0))
    normalize = keras.layers.Normalization()
    normalize.adapt(x)
    model = small_classifier(preprocessing=normalize)
    model.fit(x, y, epochs=2, verbose=0)
    other = model.with_score("max_logit")
    np.testing.assert_allclose(
        other.predict_scores(x).logits, model.predict_scores(x).logits
    )


@no_backend
def test_settings_of_a_score_are_saved(tmp_path):
    for rule in (
        scores.OpenMax(tail_size=7, rank=2),
        scores.NNGuide(3, bank_size=60),
        scores.ViM(2),
        scores.Energy(2.5),
    ):
        model, x, y = trained(rule)
        model.fit_centers(x, y)
        model.save(tmp_path / "model.keras")
        again = cac_tf.load_model(tmp_path / "model.keras")
        assert again.score.get_config() == rule.get_config()
        assert again.score.is_fitted
        # And it can be fitted anew, with other numbers of examples.
        again.fit_centers(x[:90], y[:90])


# ---- two views ------------------------------------------------------------


def on_images(score="gamma", **kwargs):
    """A random classifier on images that are not symmetric, and images."""
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential(
        [
            keras.Input([6, 5, 1]),
            keras.layers.Flatten(name="features"),
            keras.layers.Dense(3),
        ]
    )
    model = cac_tf.OpenSetClassifier(
        backbone,
        ["a", "b", "c"],
        preprocessing=cac_tf.layers.ImagePreprocessing(6, 5, 0.4, 0.2),
        score=score,
        **kwargs,
    )
    model.build((None, 6, 5, 1))
    rng = np.random.default_rng(0)
    return model, np.float32(rng.uniform(0, 255, (90, 6, 5, 1)))


def test_two_views_are_means_over_the_mirror_image(mode):
    one, x = on_images("vim")
    two = one.with_score("vim", tta="flip")
    y = np.arange(90) % 3
    one.fit_score(x, y)
    two.fit_score(x, y)
    # The statistics are those of the images as they are.
    np.testing.assert_allclose(
        two.score.statistic("origin"), one.score.statistic("origin")
    )

    def outputs(model, images):
        return outputs_of(model, images, names)

    names = ("logits", "features", "distances", "unknown_score")
    plain, mirrored = outputs(one, x), outputs(one, x[:, :, ::-1])
    both = outputs(two, x)
    for name in ("logits", "features"):
        np.testing.assert_allclose(
            both[name], (plain[name] + mirrored[name]) / 2, atol=1e-5
        )
    # An image and its mirror image are one.
    again = outputs(two, x[:, :, ::-1])
    np.testing.assert_allclose(
        again["unknown_score"], both["unknown_score"], rtol=1e-5, atol=1e-5
    )
    distances = execution.compiled(lambda i: two(i)["distances"], mode)(x)
    np.testing.assert_allclose(distances, both["distances"], rtol=1e-5)
    # Training sees images as they are, and so does who asks for that.
    logits = two(keras.ops.convert_to_tensor(x), training=True)["logits"]
    np.testing.assert_allclose(logits, plain["logits"], atol=1e-5)
    for model in (one, two):
        single = outputs_of(model, x, names, single_view=True)
        for name in ("logits", "features"):
            np.testing.assert_allclose(single[name], plain[name], atol=1e-5)


def test_tta_is_saved(tmp_path):
    model, x = on_images(tta="flip")
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.tta == "flip"
    np.testing.assert_allclose(
        again.predict_scores(x).logits,
        model.predict_scores(x).logits,
        atol=1e-6,
    )


def test_tta_bad_input():
    with pytest.raises(ValueError, match="tta must be None or "):
        on_images(tta="rotate")
    model = cac_tf.OpenSetClassifier(network(), ["a", "b", "c"], tta="flip")
    with pytest.raises(ValueError, match="is for images"):
        model.build((None, 5))


# ---- any classifier -------------------------------------------------------


def classifiers():
    """Kinds of trained classifiers, all with the same three layers."""
    layers = keras.layers

    def functional():
        inputs = keras.Input([5])
        x = layers.Dense(8, activation="relu", name="hidden")(inputs)
        outputs = layers.Dense(3, activation="softmax", name="out")(x)
        return keras.Model(inputs, outputs)

    def sequential():
        return keras.Sequential(
            [
                keras.Input([5]),
                layers.Dense(8, activation="relu", name="hidden"),
                layers.Dense(3, name="out"),
                layers.Softmax(),
            ]
        )

    def activation():
        inputs = keras.Input([5])
        x = layers.Dense(8, activation="relu", name="hidden")(inputs)
        x = layers.Dropout(0.5)(x)
        x = layers.Dense(3, name="out")(x)
        return keras.Model(inputs, layers.Activation("softmax")(x))

    def nested():
        inputs = keras.Input([5])
        return keras.Model(inputs, functional()(inputs))

    def of_logits():
        return network()

    return [functional, sequential, activation, nested, of_logits][
        : 5 if IS_TENSORFLOW else 1
    ]


def layer_of(model, names):
    for layer in model.layers:
        if layer.name in names:
            return layer
        if isinstance(layer, keras.Model):
            return layer_of(layer, names)
    raise AssertionError(names)


@pytest.mark.parametrize("make", classifiers(), ids=lambda make: make.__name__)
def test_from_classifier(make, tmp_path):
    classifier = make()
    x, y = blobs(np.random.default_rng(0))
    classifier.compile("adam", "sparse_categorical_crossentropy")
    before = classifier.predict(x, verbose=0)
    weights = [np.asarray(w) for w in classifier.weights]
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier, ["a", "b", "c"], score="mahalanobis"
    )
    model.fit_score(x, y)
    model.calibrate(x, true_positive_rate=0.9)
    found = model.predict_scores(x)
    hidden = layer_of(classifier, ["hidden"])
    out = layer_of(classifier, ["out", "logits"])
    features = np.maximum(x @ hidden.kernel + hidden.bias, 0.0)
    logits = features @ np.asarray(out.kernel) + np.asarray(out.bias)
    np.testing.assert_allclose(found.logits, logits, atol=1e-4)
    if make.__name__ != "of_logits":
        np.testing.assert_allclose(
            special.softmax(np.float64(found.logits), axis=1), before, atol=1e-5
        )
    outputs = outputs_of(model, x, ["features"])
    np.testing.assert_allclose(outputs["features"], features, atol=1e-5)
    # The classifier is as it was.
    np.testing.assert_array_equal(classifier.predict(x, verbose=0), before)
    for one, other in zip(weights, classifier.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict_scores(x).unknown_score, found.unknown_score, rtol=1e-5
    )
    assert again.threshold == model.threshold


def test_from_classifier_bad_input():
    make = cac_tf.OpenSetClassifier.from_classifier
    sigmoid = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(3, activation="sigmoid")]
    )
    with pytest.raises(ValueError, match="ends in 3 outputs of a sigmoid"):
        make(sigmoid, ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"must be \(batch, 2\)"):
        make(network(), ["a", "b"])
    layers = keras.layers
    for last, message in (
        (
            [layers.Dense(3, activation="softmax", name="p"), layers.Flatten()],
            "Layers follow on the softmax 'p'",
        ),
        (
            [
                layers.Reshape([1, 5]),
                layers.Conv1D(3, 1, activation="softmax", name="p"),
                layers.Reshape([3]),
            ],
            "Layers follow on the softmax 'p'",
        ),
        (
            [layers.EinsumDense("ab,bc->ac", 3, activation="softmax")],
            "is part of the layer .* a EinsumDense",
        ),
    ):
        classifier = keras.Sequential([keras.Input([5]), *last])
        with pytest.raises(ValueError, match=message):
            make(classifier, ["a", "b", "c"])
    one, two = keras.Input([5]), keras.Input([5])
    outputs = layers.Dense(3)(layers.Add()([one, two]))
    with pytest.raises(ValueError, match="takes 2 inputs"):
        make(keras.Model([one, two], outputs), ["a", "b", "c"])
    x, y = blobs(np.random.default_rng(0))
    hidden_softmax = Subclassed("softmax")
    hidden_softmax(x)
    model = make(hidden_softmax, ["a", "b", "c"])
    with pytest.raises(ValueError, match="gives probabilities"):
        model.fit_centers(x, y)
    logits = Subclassed()
    logits(x)
    model = make(logits, ["a", "b", "c"])
    model.fit_score(x, y)
    assert np.isfinite(model.predict_scores(x).unknown_score).all()


# ---- export ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="export needs TensorFlow"
)
@pytest.mark.parametrize("name", scores.common_names())
def test_export(name, tmp_path):
    import tensorflow as tf

    model, x, y = trained(name)
    model.fit_centers(x, y)
    model.calibrate(x, true_positive_rate=0.8)
    expected = model.predict_open_set(x)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures[
        "serving_default"
    ]
    bad = np.float32([[np.nan] * 5, [np.inf] * 5, [3e38] * 5])
    out = serve(images=tf.constant(np.concatenate([x, bad])))
    n = len(x)
    # An input whose score is theta itself may fall to either side.
    apart = np.abs(expected.unknown_score - model.threshold) > 1e-5
    np.testing.assert_array_equal(
        out["class_id"][:n][apart], expected.class_id[apart]
    )
    np.testing.assert_allclose(
        out["unknown_score"][:n], expected.unknown_score, rtol=1e-5, atol=1e-5
    )
    assert not out["is_valid"][n:].numpy().any()
    assert (out["class_id"][n:].numpy() == -1).all()
    for value in out.values():
        if value.dtype.is_floating:
            assert np.isfinite(value).all()
    if not model.score.reads_distances:
        # Where the score reads logits, so do the probabilities.
        logits = np.float64(model.predict_scores(x).logits)
        np.testing.assert_allclose(
            out["probabilities"][:n],
            special.softmax(logits, axis=1),
            atol=1e-5,
        )


@pytest.mark.skipif(
    execution.BACKEND != "tensorflow", reason="export needs TensorFlow"
)
def test_export_of_two_views(tmp_path):
    import tensorflow as tf

    model, x = on_images("nnguide", tta="flip")
    model.fit_score(x, np.arange(90) % 3)
    model.calibrate(x, true_positive_rate=0.8)
    model.export(tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures[
        "serving_default"
    ]
    out = serve(images=tf.constant(x))
    mirrored = serve(images=tf.constant(x[:, :, ::-1]))
    np.testing.assert_allclose(
        out["unknown_score"],
        model.predict_scores(x).unknown_score,
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        out["unknown_score"], mirrored["unknown_score"], rtol=1e-5, atol=1e-5
    )
