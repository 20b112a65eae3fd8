# SPDX-License-Identifier: Apache-2.0
"""The scikit-learn estimator: on digits, and by scikit-learn's own checks."""

import pickle
import random

import keras
import numpy as np
import pytest
import sklearn
import sklearn.datasets
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.estimator_checks import parametrize_with_checks

import cac_tf
from cac_tf.sklearn import OpenSetClassifier
from tests.conftest import blobs

KNOWN = 7  # The digits 7, 8 and 9 are unknown.

pytestmark = [
    # Some of the data have twenty rows, with random labels.
    pytest.mark.filterwarnings("ignore:.* too few to guarantee"),
    pytest.mark.filterwarnings("ignore:These classes keep"),
]

_ONE_COLUMN = (
    "decision_function has one column, that of an outlier detector: it says "
    "known or unknown, not which class"
)
_ROUNDING = (
    "the network computes in float32, which on some processors rounds a row "
    "by its place in a batch; the check allows 1e-7"
)
EXPECTED_FAILED_CHECKS = {
    "check_classifiers_train": _ONE_COLUMN,
    "check_classifiers_classes": _ONE_COLUMN
    + "; and -1, which means unknown, may not be a class",
    "check_decision_proba_consistency": _ONE_COLUMN,
    "check_methods_sample_order_invariance": _ROUNDING,
    "check_methods_subset_invariance": _ROUNDING,
}
QUICK_CHECKS = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_nan_inf",
    "check_estimators_unfitted",
    "check_fit2d_1sample",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
)


def small_estimator(**kwargs):
    return OpenSetClassifier(
        **{"epochs": 2, "learning_rate": 0.01, "random_state": 0, **kwargs}
    )


@pytest.mark.slow
@parametrize_with_checks(
    [small_estimator(epochs=10, batch_size=16)],
    expected_failed_checks=lambda _: EXPECTED_FAILED_CHECKS,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_quick_checks_of_scikit_learn():
    names = []
    for estimator, check in estimator_checks_generator(small_estimator()):
        name = check.func.__name__
        if name in QUICK_CHECKS:
            names.append(name)
            check(estimator)
    assert set(names) == set(QUICK_CHECKS)


@pytest.fixture(scope="module")
def digits():
    """Known rows for training; known and unknown ones for the test."""
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    is_known = y < KNOWN
    x_train, x_test, y_train, y_test = train_test_split(
        x[is_known], y[is_known], test_size=0.3, random_state=0
    )
    return x_train, y_train, x_test, y_test, x[~is_known]


@pytest.fixture(scope="module")
def pipeline(digits):
    x_train, y_train, *_ = digits
    made = make_pipeline(
        StandardScaler(), OpenSetClassifier(epochs=40, random_state=0)
    )
    return made.fit(x_train, y_train)


def test_digits_of_other_classes_are_rejected(pipeline, digits):
    *_, x_test, y_test, x_unknown = digits
    x = np.concatenate([x_test, x_unknown])
    is_known = np.arange(len(x)) < len(x_test)
    assert roc_auc_score(is_known, pipeline.score_samples(x)) > 0.9
    assert pipeline.score(x_test, y_test) > 0.95
    known, unknown = pipeline.predict(x_test), pipeline.predict(x_unknown)
    assert np.mean(unknown == -1) > 0.5
    # 95 % is wanted, and 176 rows that were held back tell it roughly.
    assert 0.9 < np.mean(known != -1) < 1
    assert np.mean(known[known != -1] == y_test[known != -1]) > 0.97
    assert known.dtype == y_test.dtype


def test_the_score_is_that_of_the_model(pipeline, digits):
    """scikit-learn's signs; the rule and the numbers are the model's."""
    x = digits[-1]
    estimator = pipeline[-1]
    out = estimator.model_.predict_open_set(
        pipeline[:-1].transform(x).astype("float32")
    )
    np.testing.assert_array_equal(
        pipeline.score_samples(x), -out.unknown_score.astype("float64")
    )
    decision = pipeline.decision_function(x)
    np.testing.assert_array_equal(
        decision, estimator.model_.threshold - out.unknown_score.astype(float)
    )
    np.testing.assert_array_equal(decision < 0, out.is_unknown)
    np.testing.assert_array_equal(pipeline.predict(x) == -1, out.is_unknown)


def test_shares_of_the_classes(pipeline, digits):
    *_, x_test, y_test, x_unknown = digits
    shares = pipeline.predict_proba(x_unknown)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    x = pipeline[:-1].transform(x_unknown).astype("float32")
    distances = pipeline[-1].model_.predict_scores(x).distances
    expected = np.exp(distances.min(axis=1, keepdims=True) - distances)
    np.testing.assert_allclose(
        shares, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4
    )
    best = pipeline.classes_[pipeline.predict_proba(x_test).argmax(axis=1)]
    assert np.mean(best == y_test) == pipeline.score(x_test, y_test)


def test_accuracy_counts_known_inputs_before_rejection(pipeline, digits):
    *_, x_test, y_test, x_unknown = digits
    accuracy = pipeline.score(x_test, y_test)
    is_accepted = pipeline.predict(x_test) != -1
    assert not is_accepted.all()
    assert accuracy > np.mean(pipeline.predict(x_test) == y_test)
    x = np.concatenate([x_test, x_unknown])
    y = np.concatenate([y_test, np.full(len(x_unknown), -1)])
    assert pipeline.score(x, y) == accuracy
    weights = np.where(np.arange(len(x)) == 0, 1.0, 0.0)
    (right,) = pipeline.predict_proba(x_test[:1]).argmax(axis=1) == y_test[:1]
    assert pipeline[-1].score(
        pipeline[:-1].transform(x), y, sample_weight=weights
    ) == float(right)
    with pytest.raises(ValueError, match="at least one known input"):
        pipeline.score(x_unknown, np.full(len(x_unknown), -1))


def test_a_pickle_answers_alike(pipeline, digits):
    x = digits[-1]
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(x), pipeline.predict(x))
    np.testing.assert_array_equal(
        again.score_samples(x), pipeline.score_samples(x)
    )
    assert again[-1].offset_ == pipeline[-1].offset_


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="export needs TensorFlow"
)
def test_the_model_can_be_saved_and_exported(pipeline, digits, tmp_path):
    pipeline[-1].model_.save(tmp_path / "model.keras")
    pipeline[-1].model_.export(tmp_path / "1")
    model = cac_tf.load_model(tmp_path / "model.keras")
    x = pipeline[:-1].transform(digits[-1]).astype("float32")
    labels = model.predict_open_set(x).label
    answers = [str(one) for one in pipeline.predict(digits[-1])]
    assert [one.replace("unknown", "-1") for one in labels] == answers


def test_classes_that_are_texts(rng):
    x, y = blobs(rng)
    names = np.array(["cow", "ant", "bee"])
    far = np.full((2, x.shape[1]), 50.0)
    estimator = small_estimator(epochs=20).fit(x, names[y])
    assert estimator.classes_.tolist() == ["ant", "bee", "cow"]
    answers = estimator.predict(np.concatenate([x, far]))
    # Not the text "-1".
    assert answers[-2:].tolist() == [-1, -1]
    is_accepted = answers[:-2] != -1
    assert is_accepted.mean() > 0.8
    np.testing.assert_array_equal(
        answers[:-2][is_accepted], names[y][is_accepted]
    )
    assert estimator.score(x, names[y]) == 1.0
    # Inputs of no known class do not count, in a list of texts either.
    with_far = np.concatenate([x, far])
    for classes in (
        [*names[y], -1, -1],
        np.array([*names[y], -1, -1], object)[:, None],
    ):
        assert estimator.score(with_far, classes) == 1.0
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.score(with_far, names[y])

    estimator.set_params(unknown_label="none of them")
    assert estimator.predict(far).tolist() == ["none of them"] * 2
    assert estimator.predict(x).dtype.kind == "U"


@pytest.mark.parametrize(
    ("classes", "unknown"), [([0, 1], "?"), ([False, True], -1)]
)
def test_answers_are_of_the_kinds_that_were_given(rng, classes, unknown):
    x, y = blobs(rng, num_classes=2)
    estimator = small_estimator(epochs=10, unknown_label=unknown)
    y = np.array(classes)[y]
    far = np.full((1, x.shape[1]), 50.0)
    answers = estimator.fit(x, y).predict(np.concatenate([x, far])).tolist()
    assert answers[-1] is unknown or answers[-1] == unknown == -1
    known = [one for one in answers[:-1] if one != unknown]
    assert {type(one) for one in known} == {type(one) for one in classes}
    assert len(known) > 180
    assert estimator.score(x, y) == 1.0
    assert estimator.classes_.dtype == y.dtype


def test_a_fit_that_fails_leaves_nothing_fitted(rng):
    x, y = blobs(rng)
    estimator = small_estimator(validation_fraction=1e-3)
    with pytest.raises(ValueError, match="test_size"):
        estimator.fit(x, y)
    with pytest.raises(NotFittedError):
        estimator.predict(x)


def test_a_second_fit_starts_anew(rng):
    x, y = blobs(rng)
    estimator = small_estimator(epochs=10)
    first = estimator.fit(x, y).score_samples(x)
    estimator.fit(x[:, :3], y + 5)
    assert estimator.n_features_in_ == 3
    assert estimator.classes_.tolist() == [5, 6, 7]
    np.testing.assert_array_equal(estimator.fit(x, y).score_samples(x), first)


def test_the_seed_decides(rng):
    x, y = blobs(rng)
    first, again, other = (
        small_estimator(random_state=seed).fit(x, y).score_samples(x)
        for seed in (3, np.random.RandomState(3), 4)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_random_numbers_of_others_go_on(rng):
    x, y = blobs(rng)
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    small_estimator(random_state=0).fit(x, y)
    assert (random.random(), np.random.random()) == expected


def convolution(input_shape, num_classes):
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(num_classes),
        ]
    )


def test_images_and_a_network_of_ones_own(digits):
    x_train, y_train, x_test, y_test, _ = (
        one.reshape(-1, 8, 8, 1) / 16 if one.ndim == 2 else one
        for one in digits
    )
    estimator = small_estimator(network=convolution, epochs=10)
    estimator.fit(x_train, y_train)
    assert isinstance(
        estimator.model_.classifier.layers[1], keras.layers.Conv2D
    )
    assert estimator.score(x_test, y_test) > 0.95
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(
        again.predict(x_test), estimator.predict(x_test)
    )


def test_a_search_over_scores(rng):
    x, y = blobs(rng)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small_estimator(epochs=10)),
        {"opensetclassifier__rejection_score": ["gamma", "vim"]},
        cv=2,
        error_score="raise",
    )
    search.fit(x, y)
    assert search.best_score_ > 0.9
    estimator = search.best_estimator_[-1]
    assert estimator.model_.score.name == estimator.rejection_score
    assert search.predict(50 * np.ones_like(x[:1])).tolist() == [-1]


def test_probabilities_of_a_score_that_reads_no_distances(rng):
    x, y = blobs(rng)
    estimator = small_estimator(rejection_score="max_logit").fit(x, y)
    logits = estimator.model_.predict_scores(x).logits
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(estimator.predict_proba(x), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "parameters, error, message",
    [
        ({"epochs": -1}, ValueError, "epochs == -1, must be >= 1"),
        ({"epochs": 1.5}, TypeError, "epochs must be an instance of int"),
        ({"batch_size": 0}, ValueError, "batch_size == 0, must be >= 1"),
        ({"learning_rate": 0}, ValueError, "learning_rate == 0, must be > 0"),
        (
            {"true_positive_rate": 1.0},
            ValueError,
            "true_positive_rate == 1.0, must be < 1",
        ),
        (
            {"validation_fraction": 0.0},
            ValueError,
            "validation_fraction == 0.0, must be > 0",
        ),
        (
            {"rejection_score": "gama"},
            ValueError,
            "Unknown score 'gama'; did you mean 'gamma'?",
        ),
        ({"random_state": "x"}, ValueError, "cannot be used to seed"),
        (
            {"unknown_label": 2},
            ValueError,
            "unknown_label 2 is one of the classes in y",
        ),
    ],
)
def test_parameters_that_are_not_allowed(rng, parameters, error, message):
    x, y = blobs(rng)
    estimator = small_estimator(**parameters)
    with pytest.raises(error, match=message):
        estimator.fit(x, y)
    assert not hasattr(estimator, "model_")


def test_data_that_are_not_allowed(rng):
    x, y = blobs(rng)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        small_estimator().predict(x)
    with pytest.raises(ValueError, match="one class: 4"):
        small_estimator().fit(x, np.full(len(x), 4))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        small_estimator().fit(x, y + 0.5)
    with pytest.raises(ValueError, match="only 1 member"):
        small_estimator().fit(x, np.where(np.arange(len(x)) == 0, 9, y))
    with pytest.raises(ValueError, match="cannot be named 'unknown'"):
        small_estimator().fit(x, np.array(["a", "b", "unknown"])[y])
    estimator = small_estimator().fit(x, y)
    for ask in (
        estimator.predict,
        estimator.predict_proba,
        estimator.score_samples,
        estimator.decision_function,
    ):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            ask(np.where(x > 0, np.nan, x))
        with pytest.raises(ValueError, match="expecting 5 features"):
            ask(x[:, :4])
