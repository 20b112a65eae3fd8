# SPDX-License-Identifier: Apache-2.0
"""Class centers of a model: class means, anchors, or whatever is given."""

import warnings

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.layers.class_distances import starting_centers
from tests import oracle
from tests.conftest import blobs
from tests.conftest import small_classifier

make = cac_tf.OpenSetClassifier.from_classifier


@pytest.fixture(scope="module")
def trained():
    """A classifier that gets some examples wrong, inputs, labels, logits."""
    keras.utils.set_random_seed(0)
    x, y = blobs(np.random.default_rng(0))
    x = np.float32(x + 1.5 * np.random.default_rng(1).standard_normal(x.shape))
    classifier = small_classifier()
    classifier.fit(x, y, epochs=3, verbose=0)
    return classifier, x, y, classifier.predict(x, verbose=0)


def class_means(logits, labels, is_right, otherwise):
    """Section 3.1.2, one class at a time."""
    means = np.float64(otherwise)
    for c in range(len(means)):
        chosen = (labels == c) & is_right
        if chosen.any():
            means[c] = np.float64(logits[chosen]).mean(axis=0)
    return means


@pytest.mark.parametrize("batch_size", [None, 7])
def test_class_means_are_those_of_the_rows_that_are_right(trained, batch_size):
    classifier, x, y, logits = trained
    is_right = logits.argmax(axis=1) == y
    assert 5 < (~is_right).sum() < 100
    model = make(classifier, (x, y), score="gamma", batch_size=batch_size)
    means = class_means(logits, y, is_right, np.zeros((3, 3)))
    np.testing.assert_allclose(model.centers, means, rtol=1e-5, atol=1e-5)
    assert not model.has_anchors and model.magnitude is None
    found = model.predict_scores(x)
    expected = oracle.distances(logits, means)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-4, atol=1e-5)
    # Another score has the same centers.
    other = model.with_score("min_distance")
    np.testing.assert_array_equal(other.centers, model.centers)


def own_warnings(caught):
    texts = [str(one.message) for one in caught]
    return [text for text in texts if "anchors as centers" in text]


def test_classes_without_an_example_that_is_right_keep_their_anchors(trained):
    """One warning names all of them."""
    classifier, x, y, logits = trained
    wrong = np.choose(logits.argmax(axis=1), [0, 2, 1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(
            classifier,
            (x, wrong),
            class_names=["cat", "dog", "cow"],
            score="gamma",
            magnitude=7,
        )
    (text,) = own_warnings(caught)
    assert text.endswith("classified correctly: 'dog', 'cow'.")
    means = class_means(
        logits, wrong, logits.argmax(axis=1) == wrong, 7 * np.eye(3)
    )
    np.testing.assert_allclose(model.centers, means, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(model.centers[1:], 7 * np.eye(3)[1:])


def test_the_warning_names_ten_classes(rng):
    classifier = small_classifier(13)
    x = np.float32(rng.standard_normal((40, 5)))
    wrong = (classifier.predict(x, verbose=0).argmax(axis=1) + 1) % 13
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(classifier, (x, wrong), score="gamma")
    (text,) = own_warnings(caught)
    assert "'0', '1'" in text and "'9' and 3 more." in text
    np.testing.assert_array_equal(model.centers, 10 * np.eye(13))


def test_anchors(trained):
    classifier, x, y, logits = trained
    model = make(
        classifier, (x, y), score="gamma", centers="anchors", magnitude=8
    )
    assert model.has_anchors and model.magnitude == 8.0
    np.testing.assert_array_equal(model.centers, 8 * np.eye(3))
    found = model.predict_scores(x)
    expected = oracle.distances(logits, 8 * np.eye(3))
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5)
    assert model.with_score("min_distance").magnitude == 8.0
    with pytest.raises(ValueError, match='None .class means., "anchors" or an'):
        make(classifier, (x, y), score="gamma", centers="means")


@pytest.mark.parametrize("width", [2, 3, 5])
def test_centers_that_are_given(rng, width):
    """Of three classes, also in fewer or more dimensions."""
    x, y = blobs(rng)
    classifier = small_classifier(width)
    centers = np.float32(rng.normal(0, 4, (3, width)))
    model = make(classifier, (x, y), score="gamma", centers=centers,
                 class_names=list("abc"))  # fmt: skip
    np.testing.assert_array_equal(model.centers, centers)
    logits = classifier.predict(x, verbose=0)
    expected = oracle.distances(logits, centers)
    found = model.predict_scores(x)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5)
    np.testing.assert_array_equal(
        found.predicted_class_id, expected.argmin(axis=1)
    )
    np.testing.assert_array_equal(
        model.with_score("max_logit").predict_scores(x).predicted_class_id,
        (expected if width != 3 else -logits).argmin(axis=1),
    )


def test_centers_that_are_refused(rng):
    classifier = small_classifier(2)
    for centers, message in (
        (np.zeros((3, 3)), r"centers must have shape \(3, 2\); got \(3, 3\)"),
        (np.full((3, 2), np.nan), "class_centers must be finite"),
        (10.0, "no anchors for 3 classes in 2 dimensions: pass the centers"),
        (0.0, "magnitude"),
    ):
        with pytest.raises(ValueError, match=message):
            cac_tf.OpenSetClassifier(classifier, list("abc"), centers=centers)


@pytest.mark.parametrize("width", [2, 4])
def test_some_scores_need_a_logit_of_each_class(rng, width):
    """In two or four dimensions, three classes have centers, but no logits."""
    x, y = blobs(rng)
    classifier = small_classifier(width)
    centers = np.zeros((3, width), "float32")
    centers[:, :2] = [[4, 0], [-2, 3], [-2, -3]]
    model = cac_tf.OpenSetClassifier(classifier, list("abc"), centers=centers)
    for name in ("class_z_score", "openmax", "she"):
        with pytest.raises(
            ValueError, match=f"'{name}' needs one logit.*{width} for"
        ):
            model.with_score(name, (x, y))
    # Two graphs: distances between coordinates, some of them small.
    outputs = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        model.with_score("min_distance").predict_scores(x).unknown_score,
        outputs["distances"].min(axis=1),
        rtol=0,
        atol=oracle.rounding(outputs["logits"], centers),
    )


# ---- networks with centers of their own -----------------------------------


def with_class_distances(width, learnt=True):
    inputs = keras.Input([5])
    logits = keras.layers.Dense(width, name="last")(inputs)
    distances = cac_tf.layers.ClassDistances(
        3, magnitude=6.0, learnt=learnt, name="class_distances"
    )
    outputs = {"logits": logits, "class_distances": distances(logits)}
    return keras.Model(inputs, outputs), distances


@pytest.mark.parametrize("width", [2, 5])
def test_learnt_centers(rng, tmp_path, width):
    """Right is what is nearest to its own center, wherever that is."""
    x, y = blobs(rng)
    classifier, distances = with_class_distances(width)
    start = np.asarray(distances.centers)
    np.testing.assert_array_equal(start, starting_centers(3, width, 6.0))
    classifier.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        {"class_distances": cac_tf.losses.CACLoss(from_distances=True)},
    )
    first = classifier.predict(x, verbose=0)
    d = oracle.distances(first["logits"], start)
    np.testing.assert_allclose(-first["class_distances"], d, rtol=1e-4)
    history = classifier.fit(x, y, batch_size=240, epochs=20, verbose=0).history
    loss = oracle.cac_loss(y, d).mean()
    assert history["loss"][0] == pytest.approx(loss, rel=1e-4)
    learnt = np.asarray(distances.centers)
    assert np.abs(learnt - start).max(axis=1).min() > 0.05

    few = y != 1
    with pytest.warns(UserWarning, match="classified correctly: '1'"):
        model = make(classifier, (x[few], y[few]), score="min_distance")
    outputs = classifier.predict(x, verbose=0)
    is_right = outputs["class_distances"].argmax(axis=1) == y
    assert is_right.mean() > 0.5
    expected = class_means(outputs["logits"], y, is_right & few, learnt)
    np.testing.assert_array_equal(model.centers[1], learnt[1])
    np.testing.assert_allclose(model.centers, expected, rtol=1e-4, atol=1e-5)
    found = model.predict_scores(x)
    d = oracle.distances(outputs["logits"], expected)
    np.testing.assert_allclose(found.unknown_score, d.min(axis=1), rtol=1e-3)
    np.testing.assert_array_equal(found.predicted_class_id, d.argmin(axis=1))
    # Its own distances are an output like others.
    np.testing.assert_allclose(
        model.predict(x, verbose=0)["class_distances"],
        outputs["class_distances"],
        rtol=1e-5,
    )
    # And the learnt centers may be the model's.
    same = make(classifier, (x, y), score="min_distance", centers=learnt)
    np.testing.assert_allclose(
        same.predict_scores(x).distances,
        -outputs["class_distances"],
        rtol=1e-4,
        atol=1e-5,
    )
    model.calibrate(x, true_positive_rate=0.9)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, model.predict_open_set(x).class_id
    )


def test_fixed_centers_of_another_width(rng):
    x, y = blobs(rng)
    classifier, distances = with_class_distances(5, learnt=False)
    assert distances.trainable_weights == []
    with pytest.raises(ValueError, match="5 outputs for 3.*ClassDistances"):
        make(
            keras.Model(classifier.input, classifier.output["logits"]),
            (x, y),
            class_names=list("abc"),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # (It is not trained.)
        model = make(classifier, (x, y), score="min_distance")
    assert model.class_names == ("0", "1", "2")
    assert model.centers.shape == (3, 5)


def test_many_classes_make_no_large_file(rng, tmp_path):
    """2000 anchors of 2000 numbers would be 16 MB."""
    classifier = keras.Sequential([keras.Input([3]), keras.layers.Dense(2000)])
    names = [f"{i}" for i in range(2000)]
    model = cac_tf.OpenSetClassifier(classifier, names, threshold=100.0)
    x = np.float32(rng.standard_normal((4, 3)))
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 300_000
    again = cac_tf.load_model(tmp_path / "model.keras")
    found, expected = again.predict_open_set(x), model.predict_open_set(x)
    np.testing.assert_array_equal(found.class_id, expected.class_id)
    np.testing.assert_array_equal(found.distances, expected.distances)
