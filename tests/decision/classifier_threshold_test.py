# SPDX-License-Identifier: Apache-2.0
"""A model's threshold: set, by class, kept, the same in every batch."""

import itertools
import warnings

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf.decision import calibration
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


@pytest.mark.parametrize(
    ("threshold", "match"),
    [
        (np.nan, "finite"),
        (np.inf, "finite"),
        (-np.inf, "finite"),
        ([1.0, np.nan, 2.0], "finite"),
        ([1.0, 2.0], "one for each of 3.*got 2"),
        ([1.0] * 4, "one for each of 3.*got 4"),
        ([], "one for each of 3.*got 0"),
        ([[1.0, 2.0, 3.0]], "must be a number"),
        ("0.3", "must be a number"),
        (b"0.3", "must be a number"),
        ("high", "must be a number"),
        (True, "must be a number"),
        ({"a": 1}, "must be a number"),
        (object(), "must be a number"),
        (10**400, "must be a number|finite"),
        (-0.1, "'gamma' .*below 0.*reject every"),
        ([1.0, -1e-6, 2.0], "'gamma' .*below 0.*reject every"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("by_property", [True, False])
def test_bad_thresholds(model, threshold, match, by_property):
    model.threshold = 0.5
    with pytest.raises(ValueError, match=match):
        if by_property:
            model.threshold = threshold
        else:
            model.set_threshold(threshold)
    assert model.threshold == 0.5


def test_a_number_larger_than_float32(model):
    model.threshold = 0.5
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="finite"),
    ):
        model.threshold = 1e39
    assert model.threshold == 0.5


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


def test_a_class_that_nothing_is_taken_for(model):
    x, y = inputs_and_labels()
    found = model.predict_scores(x)
    rows = found.predicted_class_id != 1
    with pytest.warns(UserWarning, match=r"classes \[1\]"):
        threshold = model.calibrate(
            x[rows], true_positive_rate=0.8, by_class=True
        )
    alone = model.calibrate(x[rows], true_positive_rate=0.8)
    assert threshold[1] == pytest.approx(alone, rel=1e-6)


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


def test_too_few_examples_of_a_class_are_warned_about(model):
    x, _ = inputs_and_labels()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threshold = model.calibrate(
            x[:12], true_positive_rate=0.95, by_class=True
        )
    assert any("too few" in str(w.message) for w in caught)
    out = model.predict_open_set(x[:12])
    assert not out.is_unknown.any()
    found = model.predict_scores(x[:12])
    for label in np.unique(found.predicted_class_id):
        own = found.predicted_class_id == label
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = calibration.threshold_for_true_positive_rate(
                found.unknown_score[own], 0.95
            )
        assert threshold[label] == pytest.approx(expected, rel=1e-5)
