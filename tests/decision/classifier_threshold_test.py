# SPDX-License-Identifier: Apache-2.0
"""A model's threshold: set, by class, kept, the same in every batch."""

import itertools
import warnings

import keras
import numpy as np
import pytest

import cac_tf
from tests.conftest import blobs


@pytest.fixture(scope="module")
def model():
    """Trained with some overlap, so that scores differ; not calibrated."""
    keras.utils.set_random_seed(0)
    x, y = inputs_and_labels()
    classifier = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    classifier.compile(
        keras.optimizers.SGD(0.1, momentum=0.9), cac_tf.losses.CACLoss()
    )
    classifier.fit(x, y, epochs=15, verbose=0)
    return cac_tf.OpenSetClassifier.from_classifier(
        classifier, (x, y), class_names=list("abc"), score="gamma"
    )


def inputs_and_labels():
    x, y = blobs(np.random.default_rng(0), rows=150)
    noise = np.random.default_rng(1).standard_normal(x.shape)
    return np.float32(x + 0.6 * noise), y


def test_bad_thresholds(model):
    model.threshold = 0.5
    for threshold, match in (
        (np.nan, "finite"),
        (np.inf, "finite"),
        (-np.inf, "finite"),
        (1e39, "finite"),
        ([1.0, np.nan, 2.0], "finite"),
        ([1.0, 2.0], "one for each of the 3.*got 2"),
        ([1.0] * 4, "one for each of the 3.*got 4"),
        ([], "one for each of the 3.*got 0"),
        ([[1.0, 2.0, 3.0]], "must be a number"),
        ("0.3", "must be a number"),
        (b"0.3", "must be a number"),
        ("high", "must be a number"),
        (True, "must be a number"),
        ({"a": 1}, "must be a number"),
        (object(), "must be a number"),
        (10**400, "must be a number|finite"),
        (-0.1, "below 0.*reject every"),
        ([1.0, -1e-6, 2.0], "below 0.*reject every"),
    ):
        for set_to in (
            model.set_threshold,
            lambda value: setattr(model, "threshold", value),
        ):
            with (
                np.errstate(over="ignore"),
                pytest.raises(ValueError, match=match),
            ):
                set_to(threshold)
            assert model.threshold == 0.5


def test_bad_thresholds_in_weights(model, tmp_path):
    """Refused when they are loaded, wherever they come from."""
    x, _ = inputs_and_labels()
    path = tmp_path / "model.weights.h5"
    model.threshold = 0.5
    other = model.with_score("gamma")
    for bad, match in (
        (np.inf, "finite"),
        (-np.inf, "finite"),
        (np.r_[1.0, np.nan, 2.0], "finite"),
        (-0.1, "below 0.*reject every"),
    ):
        weights = other.decision.weights[0]
        weights.assign(np.broadcast_to(np.float32(bad), 3))
        other.save_weights(path)
        other.save(tmp_path / "model.keras")
        with pytest.raises(ValueError, match=match):
            model.load_weights(path)
        assert model.threshold == 0.5
        for load in (cac_tf.load_model, keras.saving.load_model):
            with pytest.raises(ValueError, match=match):
                load(tmp_path / "model.keras")


def test_bad_thresholds_of_one_decision(model):
    scores = model.predict_scores(inputs_and_labels()[0])
    for threshold, match in (
        (np.nan, "finite"),
        ([1.0, 2.0], "one for each of the 3.*got 2"),
        ("0.3", "must be a number"),
    ):
        with pytest.raises(ValueError, match=match):
            model.decide(scores, threshold)


def test_scores_that_may_be_negative_take_any_finite_number(model):
    other = model.with_score("max_logit")
    for threshold in (-3.0, [-3.0, 0.0, 4.0], np.float64(-2.5), np.int64(-2)):
        other.threshold = threshold
        np.testing.assert_array_equal(other.threshold, np.float32(threshold))


@pytest.mark.parametrize("threshold", [0.3, [0.1, 0.2, 0.4], [0.3, 0.3, 0.3]])
def test_decisions_and_round_trip(model, tmp_path, threshold):
    """The rule of equation 9, and from disk the very same threshold."""
    x, _ = inputs_and_labels()
    model.threshold = threshold
    threshold = np.broadcast_to(np.float32(threshold), 3)
    kept = model.threshold
    assert isinstance(kept, float) == bool((threshold == threshold[0]).all())
    np.testing.assert_array_equal(np.broadcast_to(kept, 3), threshold)
    out = model.predict_open_set(x)
    is_unknown = out.unknown_score > threshold[out.predicted_class_id]
    assert 0 < is_unknown.sum() < len(x)
    np.testing.assert_array_equal(out.is_unknown, is_unknown)
    np.testing.assert_array_equal(
        out.class_id, np.where(is_unknown, -1, out.predicted_class_id)
    )
    names = [*model.class_names, "unknown"]
    assert out.label.tolist() == [names[i] for i in out.class_id]
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert type(again.threshold) is type(kept)
    np.testing.assert_array_equal(again.threshold, kept)
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, out.class_id
    )


def test_what_is_given_is_not_what_is_kept(model):
    """Neither a change of the array given nor of the one got does anything."""
    given = np.array([0.1, 0.2, 0.3], "float32")
    model.threshold = given
    given[:] = 9.0
    model.threshold[:] = 8.0
    np.testing.assert_array_equal(model.threshold, np.float32([0.1, 0.2, 0.3]))


def test_none_takes_the_threshold_away(model):
    x, _ = inputs_and_labels()
    for threshold in (0.3, [0.1, 0.2, 0.3]):
        model.threshold = threshold
        model.threshold = None
        assert model.threshold is None
        with pytest.raises(ValueError, match="no threshold.*calibrate"):
            model.predict_open_set(x)


def test_no_threshold_is_saved_as_none(model, tmp_path):
    model.threshold = None
    model.save(tmp_path / "model.keras")
    assert cac_tf.load_model(tmp_path / "model.keras").threshold is None


def conformal_threshold(scores, rate, is_known):
    """Midway between the ranked score and its neighbour, in float64."""
    scores = np.sort(np.float64(scores))
    if is_known:
        rank = int(np.ceil(round((len(scores) + 1) * rate, 9)))
        return (scores[rank - 1] + scores[rank]) / 2
    rank = int(np.floor(round((len(scores) + 1) * rate, 9)))
    return (scores[rank - 2] + scores[rank - 1]) / 2


@pytest.mark.parametrize("is_known", [True, False])
def test_one_threshold_a_class(model, is_known):
    x, y = inputs_and_labels()
    found = model.predict_scores(x)
    if is_known:
        # Labels say who is known; -1 takes no part.
        data = (np.concatenate([x, 9 * x]), np.r_[y, np.full(len(x), -1)])
        threshold = model.calibrate(data, true_positive_rate=0.8, by_class=True)
    else:
        threshold = model.calibrate(
            unknown=x, false_positive_rate=0.2, by_class=True
        )
    assert threshold.shape == (3,) and threshold.dtype == np.float32
    np.testing.assert_array_equal(model.threshold, threshold)
    rate = 0.8 if is_known else 0.2
    for label in range(3):
        own = found.predicted_class_id == label
        expected = conformal_threshold(found.unknown_score[own], rate, is_known)
        assert threshold[label] == pytest.approx(expected, rel=1e-4)
        kept = np.mean(found.unknown_score[own] <= threshold[label])
        assert kept == pytest.approx(rate, abs=1.5 / own.sum())
    out = model.predict_open_set(x)
    np.testing.assert_array_equal(
        out.is_unknown, out.unknown_score > threshold[out.predicted_class_id]
    )


def test_a_class_that_few_are_taken_for(model):
    """One warning with its name; it gets the threshold of all."""
    x, _ = inputs_and_labels()
    found = model.predict_scores(x).predicted_class_id
    rows = (found != 1) | (np.cumsum(found == 1) <= 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threshold = model.calibrate(
            x[rows], true_positive_rate=0.8, by_class=True
        )
    # (NumPy has something to say of TensorFlow's arrays.)
    (text,) = [
        str(one.message) for one in caught if one.category is UserWarning
    ]
    assert text.endswith("computed from all examples: 'b' (3).")
    alone = model.calibrate(x[rows], true_positive_rate=0.8)
    assert threshold[1] == pytest.approx(alone, rel=1e-6)
    assert abs(threshold[2] - alone) > 1e-3 * alone


@pytest.mark.parametrize("name", ["knn", "nnguide"])
def test_duplicates_of_training_rows_are_decided_alike(model, name):
    """Their similarity to themselves is 1, but for rounding."""
    x, y = inputs_and_labels()
    x, y = x[:30].repeat(5, axis=0), y[:30].repeat(5)
    score = cac_tf.scores.find(name)(neighbours=1)
    other = model.with_score(score, (x, y))
    for rate in (0.3, 0.6, 0.9):
        other.calibrate(x, true_positive_rate=rate)
        accepted = ~other.predict_open_set(x).is_unknown
        assert accepted.mean() >= rate
        # All five, or none, also after other rounding.
        assert set(accepted.reshape(30, 5).sum(axis=1)) <= {0, 5}
        found = other.predict_scores(x).unknown_score
        moved = np.nextafter(found, np.float32(np.inf)) + np.float32(2e-7)
        np.testing.assert_array_equal(moved <= other.threshold, accepted)


@pytest.mark.parametrize("score", ["gamma", "min_distance", "energy"])
def test_every_example_is_decided_alike_in_any_batch(model, score):
    """The nearest to the threshold too: alone, in small batches, at once."""
    x, _ = inputs_and_labels()
    other = model.with_score(score)
    for rate, by_class in itertools.product((0.5, 0.9), (False, True)):
        threshold = other.calibrate(
            x, true_positive_rate=rate, by_class=by_class
        )
        expected = other.predict_open_set(x, batch_size=len(x))
        thresholds = np.broadcast_to(threshold, 3)[expected.predicted_class_id]
        distance = np.abs(expected.unknown_score - thresholds)
        # The scores move by less than the nearest one is away.
        nearest = np.argsort(distance)[:20]
        assert distance.min() > 0
        for batch_size in (2, 7, 64, 149):
            found = other.predict_open_set(x, batch_size=batch_size)
            np.testing.assert_array_equal(found.class_id, expected.class_id)
        for row in [*nearest, 0, 77, 149]:
            found = other.predict_open_set(x[row : row + 1])
            assert found.class_id[0] == expected.class_id[row]
        # As often among others, in another place.
        order = np.random.default_rng(5).permutation(len(x))
        found = other.predict_open_set(x[order], batch_size=11)
        np.testing.assert_array_equal(found.class_id, expected.class_id[order])


def test_calibrated_in_any_batch(model):
    x, _ = inputs_and_labels()
    for by_class in (False, True):
        thresholds = [
            model.calibrate(
                x,
                true_positive_rate=0.9,
                by_class=by_class,
                batch_size=batch_size,
            )
            for batch_size in (1, 16, 150)
        ]
        for threshold in thresholds[1:]:
            np.testing.assert_allclose(threshold, thresholds[0], rtol=1e-5)
