# SPDX-License-Identifier: Apache-2.0
"""Classifiers whose centers are learnt, or of another width than N."""

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import scores
from cac_tf.layers import AnchoredDistance
from tests import oracle
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND


def with_head(head):
    backbone = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(head.width)]
    )
    return small_classifier(backbone=backbone, head=head)


# (D, whether the centers are learnt), of three classes.
HEADS = [(3, True), (5, True), (2, True), (5, False)]


@pytest.mark.parametrize(("width", "learnt"), HEADS)
def test_trained_calibrated_saved(rng, tmp_path, width, learnt):
    x, y = blobs(rng)
    head = AnchoredDistance(3, 6.0, width=width, learnt=learnt)
    model = with_head(head)
    model.build((None, 5))
    start = model.centers
    np.testing.assert_array_equal(start, head.start)
    outputs = model.predict(x, verbose=0)
    d = oracle.distances(outputs["logits"], start)
    history = model.fit(x, y, batch_size=240, verbose=0).history["loss"]
    assert history[0] == pytest.approx(oracle.cac_loss(y, d).mean(), rel=1e-4)
    model.fit(x, y, epochs=40, verbose=0)
    learnt_centers = model.centers
    moved = np.abs(learnt_centers - start).max(axis=1)
    if learnt:
        assert moved.min() > 0.1
    else:
        assert moved.max() == 0.0
    model.calibrate(x, true_positive_rate=0.9)
    outputs = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        outputs["distances"],
        oracle.distances(outputs["logits"], learnt_centers),
        rtol=1e-4,
        atol=1e-5,
    )
    decided = model.predict_open_set(x)
    assert (decided.predicted_class_id == y).mean() > 0.95
    assert decided.is_unknown.mean() == pytest.approx(0.1, abs=0.01)

    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.centers, learnt_centers)
    assert again.distance_head.get_config() == head.get_config()
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, decided.class_id
    )
    # Learnt centers go on from where they are, anchors from where they were.
    again.fit(x, y, epochs=1, verbose=0)
    apart = np.abs(again.centers - learnt_centers).max()
    assert (0 < apart < moved.max()) if learnt else apart == 0.0
    assert again.threshold is None

    other = model.with_score("min_distance")
    np.testing.assert_array_equal(other.centers, learnt_centers)
    assert other.distance_head is not model.distance_head


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_moves_learnt_centers_by_their_gradient(rng, optimizer):
    """SGD's, by finite differences; Adam's, by how far it goes."""
    x, y = blobs(rng, rows=30)
    model = with_head(AnchoredDistance(3, 4.0, width=2, learnt=True))
    rate = 0.01
    optimizer = keras.optimizers.get(
        {"class_name": optimizer, "config": {"learning_rate": rate}}
    )
    model.compile(optimizer, cac_tf.losses.CACLoss(0.2))
    model.build((None, 5))
    start = model.centers
    logits = model.predict(x, verbose=0)["logits"]
    gradient = oracle.central_differences(
        lambda c: oracle.cac_loss(y, oracle.distances(logits, c), 0.2).mean(),
        np.float64(start),
    )
    model.fit(x, y, batch_size=30, verbose=0)
    step = model.centers - start
    if optimizer.name == "SGD" or isinstance(optimizer, keras.optimizers.SGD):
        np.testing.assert_allclose(step, -rate * gradient, atol=2e-6)
    else:
        np.testing.assert_allclose(step, -rate * np.sign(gradient), rtol=1e-3)


@pytest.mark.parametrize(("width", "learnt"), HEADS)
def test_class_means_for_any_head(rng, tmp_path, width, learnt):
    """Of examples that are right: nearest to their anchor, where it is one."""
    x, y = blobs(rng)
    model = with_head(AnchoredDistance(3, 6.0, width=width, learnt=learnt))
    model.fit(x, y, epochs=20, verbose=0)
    outputs = model.predict(x, verbose=0)
    if not learnt:
        right = outputs["logits"][:, :3].argmax(axis=1) == y
    else:
        right = outputs["distances"].argmin(axis=1) == y
    counts = model.fit_centers(x, y)
    np.testing.assert_array_equal(counts, np.bincount(y[right], minlength=3))
    assert counts.min() > 0
    for label in range(3):
        mean = np.float64(outputs["logits"][right & (y == label)]).mean(axis=0)
        np.testing.assert_allclose(
            model.centers[label], mean, rtol=1e-4, atol=1e-5
        )
    found = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        found["distances"],
        oracle.distances(found["logits"], model.centers),
        rtol=1e-4,
        atol=1e-5,
    )
    model.calibrate(x, true_positive_rate=0.9)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.centers, model.centers)
    # Training starts from anchors, and from nowhere else.
    again.fit(x, y, epochs=1, verbose=0)
    assert again.distance_head.has_anchors is not learnt
    if not learnt:
        np.testing.assert_array_equal(again.centers, 6.0 * np.eye(3, width))


@pytest.mark.parametrize(("width", "learnt"), HEADS)
def test_a_class_without_a_correct_example_keeps_its_center(rng, width, learnt):
    x, y = blobs(rng)
    model = with_head(AnchoredDistance(3, 6.0, width=width, learnt=learnt))
    model.fit(x, y, epochs=20, verbose=0)
    before = model.centers
    with pytest.warns(UserWarning, match="'class 1' keeps .*has no example"):
        model.fit_centers(x[y != 1], y[y != 1])
    np.testing.assert_array_equal(model.centers[1], before[1])
    assert np.abs(model.centers[[0, 2]] - before[[0, 2]]).min() > 0


@pytest.mark.parametrize("name", ["openmax", "class_z_score"])
def test_scores_of_logits_with_more_logits_than_classes(rng, name):
    """Each class has one logit; the others are only part of distances."""
    x, y = blobs(rng)
    backbone = keras.Sequential([keras.Input([5]), keras.layers.Dense(5)])
    head = AnchoredDistance(3, 6.0, width=5)
    model = small_classifier(backbone=backbone, head=head, score=name)
    model.fit(x, y, epochs=20, verbose=0)
    model.fit_centers(x, y)
    # Inputs of wanted logits: some have the largest one beyond the classes.
    kernel, bias = backbone.layers[-1].get_weights()
    wanted = rng.normal(0, 5, (200, 5))
    unknown = np.float32(np.linalg.solve(kernel.T, (wanted - bias).T).T)
    known = np.float64(model.predict(x, verbose=0)["logits"])
    logits = np.float64(model.predict(unknown, verbose=0)["logits"])
    np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-3)
    assert (logits.argmax(axis=1) > 2).sum() > 5
    if name == "openmax":
        expected = oracle.openmax(
            known[:, :3], y, logits[:, :3], 20, 10,
            latents=(known[:, 3:], logits[:, 3:]),
        )  # fmt: skip
    else:
        own = [
            known[(y == c) & (known[:, :3].argmax(1) == c), c] for c in y[:3]
        ]
        winner = logits[:, :3].argmax(axis=1)
        mean = np.array([values.mean() for values in own])[winner]
        deviation = np.array([values.std() for values in own])[winner]
        expected = (mean - logits[:, :3].max(axis=1)) / deviation
    model.calibrate(x, true_positive_rate=0.9)
    actual = model.predict_open_set(unknown)
    np.testing.assert_allclose(
        actual.unknown_score, expected, rtol=2e-4, atol=1e-6
    )
    assert actual.predicted_class_id.max() == 2


@pytest.mark.parametrize("width", [2, 5])
def test_accuracy_of_a_score_of_logits_is_that_of_its_decisions(rng, width):
    """With fewer logits than classes, or more, as with as many."""
    x, y = blobs(rng)
    backbone = keras.Sequential([keras.Input([5]), keras.layers.Dense(width)])
    head = AnchoredDistance(3, 6.0, width=width, learnt=width < 3)
    model = small_classifier(backbone=backbone, head=head, score="max_logit")
    model.fit(x, y, epochs=40, verbose=0)
    if width > 3:  # The largest of all, and of no class.
        weights, bias = backbone.layers[-1].get_weights()
        bias[4] = 100
        backbone.layers[-1].set_weights([weights, bias])
    predicted = model.predict_scores(x).predicted_class_id
    accuracy = np.mean(predicted == y)
    assert accuracy > 0.95
    for given in (
        ["accuracy"],
        {"logits": "accuracy"},
        {"logits": cac_tf.metrics.LargestLogitAccuracy()},
    ):
        model.compile("sgd", cac_tf.losses.CrossEntropyLoss(), metrics=given)
        evaluated = model.evaluate(x, y, verbose=0, return_dict=True)
        assert evaluated["accuracy"] == pytest.approx(accuracy)


def test_fewer_logits_than_classes_need_centers_first(rng):
    x, y = blobs(rng)
    model = with_head(AnchoredDistance(3, width=2))
    with pytest.raises(ValueError, match=r"no anchors .*assign_class_means"):
        model.fit(x, y, verbose=0)
    head = AnchoredDistance(3, width=2)
    model = with_head(head)
    model.build((None, 5))
    centers = np.float32([[4, 0], [-2, 3], [-2, -3]])
    head.assign_class_means(centers)
    history = model.fit(x, y, epochs=20, verbose=0).history["accuracy"]
    assert history[-1] > 0.95
    np.testing.assert_array_equal(model.centers, centers)
    model.calibrate(x, true_positive_rate=0.9)
    assert (model.predict_open_set(x).predicted_class_id == y).mean() > 0.95


def test_some_scores_need_a_logit_of_each_class(rng):
    """In two dimensions, three classes have centers, but no logits."""
    x, y = blobs(rng)
    model = with_head(AnchoredDistance(3, 4.0, width=2, learnt=True))
    model.fit(x, y, epochs=10, verbose=0)
    model.fit_centers(x, y)
    for name in ("class_z_score", "openmax", "she"):
        with pytest.raises(ValueError, match=f"'{name}' needs a logit.*has 2"):
            model.with_score(name)
        with pytest.raises(ValueError, match=f"'{name}' needs a logit.*has 2"):
            model.fit_scores([scores.get(name)], x, y)
    other = model.with_score("min_distance")
    outputs = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        other.predict_scores(x).unknown_score,
        outputs["distances"].min(axis=1),
        rtol=0,
        atol=oracle.rounding(outputs["logits"], model.centers),
    )


def test_bad_heads():
    backbone = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="4 centers for 3 class names"):
        cac_tf.OpenSetClassifier(
            backbone, ["a", "b", "c"], head=AnchoredDistance(4, width=3)
        )
    with pytest.raises(ValueError, match=r"must be \(batch, 2\).*width="):
        cac_tf.OpenSetClassifier(
            backbone, ["a", "b", "c"], head=AnchoredDistance(3, width=2)
        )


def test_many_classes_make_no_large_file(rng, tmp_path):
    """2000 anchors of 2000 numbers would be 16 MB."""
    backbone = keras.Sequential([keras.Input([3]), keras.layers.Dense(2000)])
    model = cac_tf.OpenSetClassifier(backbone, [f"{i}" for i in range(2000)])
    model.compile("sgd", cac_tf.losses.CACLoss())
    x = np.float32(rng.standard_normal((4, 3)))
    model.build(x.shape)
    names = [weight.name for weight in model.distance_head.weights]
    assert names == ["centers_are_anchors"]
    model.set_threshold(100.0)
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 300_000
    again = cac_tf.load_model(tmp_path / "model.keras")
    found, expected = again.predict_open_set(x), model.predict_open_set(x)
    np.testing.assert_array_equal(found.class_id, expected.class_id)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="graphs of TensorFlow")
def test_a_function_of_ones_own_is_warned_about(rng):
    """Compiled by somebody else before there were class means."""
    import tensorflow as tf

    x, y = blobs(rng)
    model = small_classifier()
    model.build((None, 5))
    own = tf.function(model)
    own(x)
    with pytest.warns(UserWarning, match="compiled.*anchors as centers"):
        model.distance_head.assign_class_means(rng.standard_normal((3, 3)))
    # The model's own functions are compiled again by themselves.
    found = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        found["distances"],
        oracle.distances(found["logits"], model.centers),
        rtol=1e-4,
    )
