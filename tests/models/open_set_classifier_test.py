# SPDX-License-Identifier: Apache-2.0
"""The model itself: outputs, decisions, thresholds, what is refused."""

import functools
import warnings

import keras
import numpy as np
import pytest
import sklearn.metrics

import cac_tf
from cac_tf import scores
from cac_tf.scores.statistics import moderated_variances
from tests import execution
from tests import oracle
from tests.conftest import small_classifier
from tests.execution import BACKEND

make = cac_tf.OpenSetClassifier.from_classifier


@pytest.fixture(scope="module")
def model_with_unknown(trained_blobs):
    """A model whose threshold a test may change, known and unknown inputs."""
    trained, x, y = trained_blobs
    model = trained.with_score("gamma")
    unknown = np.float32(np.random.default_rng(1).normal(0, 2, (200, 5)))
    return model, x, y, unknown


def test_a_call_gives_named_outputs(trained_blobs, mode):
    model, x, _ = trained_blobs
    dense = model.classifier.layers[-1]
    kernel, bias = np.float64(dense.kernel), np.float64(dense.bias)
    logits = np.float64(x) @ kernel + bias
    d = oracle.distances(logits, model.centers)
    score = oracle.gamma(d).min(axis=1)
    nearest = d.argmin(axis=1)
    expected = {
        "features": x,
        "logits": logits,
        "distances": d,
        "gamma": oracle.gamma(d),
        "unknown_score": score,
        "predicted_class_id": nearest,
        "class_id": np.where(score > model.threshold, -1, nearest),
    }
    assert sorted(model(x)) == sorted({*expected, "p_value"})
    by_keras = model.predict(x, verbose=0)
    # It was calibrated with these inputs. (Scores that are apart by rounding
    # may change places.)
    at_least = (score[None] >= score[:, None]).sum(axis=1)
    np.testing.assert_allclose(
        execution.compiled(lambda i: model(i)["p_value"], mode)(x),
        (1 + at_least) / (len(x) + 1),
        atol=2.01 / (len(x) + 1),
    )
    for name, value in expected.items():
        output = functools.partial(lambda n, i: model(i)[n], name)
        found = execution.compiled(output, mode)(x)
        kind = "int32" if name.endswith("class_id") else "float32"
        assert found.dtype == by_keras[name].dtype == kind
        for one in (found, by_keras[name]):
            np.testing.assert_allclose(one, value, rtol=1e-3, atol=1e-4)
    d = oracle.distances(by_keras["logits"], model.centers)
    assert oracle.relative_error(by_keras["distances"], d) <= 1e-5
    gamma = oracle.gamma(np.float64(by_keras["distances"]))
    assert oracle.relative_error(by_keras["gamma"], gamma) <= 1e-5
    # Training mode is that of the classifier, which is never in it here.
    for name, value in model(x, training=True).items():
        np.testing.assert_allclose(value, by_keras[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("score", ["gamma", "min_distance"])
def test_decisions_follow_the_equation(model_with_unknown, score):
    trained, x, _, unknown = model_with_unknown
    model = trained.with_score(score)
    threshold = model.calibrate(x, true_positive_rate=0.8)
    inputs = np.concatenate([x, unknown])
    out = model.predict_open_set(inputs, batch_size=37)
    d = oracle.distances(model.predict_scores(inputs).logits, model.centers)
    values = oracle.gamma(d) if score == "gamma" else d
    np.testing.assert_allclose(
        out.unknown_score, values.min(axis=1), rtol=1e-3, atol=1e-6
    )
    np.testing.assert_array_equal(out.predicted_class_id, d.argmin(axis=1))
    np.testing.assert_array_equal(out.is_unknown, out.unknown_score > threshold)
    np.testing.assert_array_equal(
        out.class_id, np.where(out.is_unknown, -1, out.predicted_class_id)
    )
    names = [*model.class_names, "unknown"]
    assert out.label.tolist() == [names[i] for i in out.class_id]
    assert np.sum(~out.is_unknown[: len(x)]) == np.ceil(0.8 * 241)
    assert out.is_unknown[len(x) :].mean() > 0.5


@pytest.mark.parametrize("threshold", [None, 2.0, [1.0, 2.0, 3.0]])
def test_measures_are_those_of_scikit_learn(model_with_unknown, threshold):
    model, x, y, unknown = model_with_unknown
    y = np.where(np.arange(len(y)) < 30, (y + 1) % 3, y)  # Some are wrong.
    inputs = np.concatenate([x, unknown])
    labels = np.concatenate([y, np.full(len(unknown), -1)])
    model.set_threshold(threshold)
    scored = model.predict_scores(inputs)
    predicted, score = scored.predicted_class_id, scored.unknown_score
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(y, predicted[: len(x)]),
        "auroc": sklearn.metrics.roc_auc_score(labels == -1, score),
    }
    if threshold is not None:
        accepted = score <= np.broadcast_to(threshold, 3)[predicted]
        expected["true_positive_rate"] = accepted[: len(x)].mean()
        expected["false_positive_rate"] = accepted[len(x) :].mean()
        assert 0 < expected["false_positive_rate"] < 1
        expected["macro_f1"] = sklearn.metrics.f1_score(
            labels, np.where(accepted, predicted, -1), average="macro"
        )
    assert expected["accuracy"] < 1
    found = model.evaluate(inputs, labels, batch_size=64)
    assert found == pytest.approx(expected, rel=1e-6)
    # Of known inputs alone, and of unknown ones alone.
    only = set(model.evaluate(x, y))
    assert only == set(expected) - {"auroc", "false_positive_rate"}
    only = set(model.evaluate(unknown, labels[len(x) :]))
    assert only == {"false_positive_rate", "macro_f1"} & set(expected)


def test_evaluate_bad_input(trained_blobs):
    model, x, y = trained_blobs
    for given, message in (
        ((x,), "evaluate needs labels"),
        ((x[:0], y[:0]), "no inputs to evaluate"),
        ((x, y + 7), "Label 7 at position 0 is out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            model.evaluate(*given)


# ---- thresholds -----------------------------------------------------------


def test_life_of_the_threshold(model_with_unknown):
    model, x, _, _ = model_with_unknown
    model.threshold = None
    with pytest.raises(ValueError, match="no threshold.*calibrate"):
        model.predict_open_set(x)
    assert (model.predict(x, verbose=0)["class_id"] == -1).all()
    threshold = model.calibrate(x, true_positive_rate=0.9)
    assert model.threshold == threshold
    # What was compiled before follows.
    share = (model.predict(x, verbose=0)["class_id"] >= 0).mean()
    assert share == np.ceil(0.9 * 241) / 240
    model.set_threshold([1.0, 2.0, 0.5])
    np.testing.assert_array_equal(model.threshold, [1.0, 2.0, 0.5])
    for value, message in (
        (-0.1, "No unknown score is below 0.*would reject every input"),
        ([1.0, 2.0], "3"),
        (np.inf, "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            model.threshold = value
    np.testing.assert_array_equal(model.threshold, [1.0, 2.0, 0.5])
    model.with_score("max_logit").set_threshold(-0.1)


def test_calibration_leaves_out_unknown_validation_data(model_with_unknown):
    model, x, y, unknown = model_with_unknown
    expected = model.calibrate(x, true_positive_rate=0.9)
    mixed_x = np.concatenate([x, unknown])
    mixed_y = np.concatenate([y, np.full(len(unknown), -1)])
    threshold = model.calibrate((mixed_x, mixed_y), true_positive_rate=0.9)
    assert threshold == pytest.approx(expected, rel=1e-5)
    assert model.calibrate(
        mixed_x, mixed_y, true_positive_rate=0.9
    ) == pytest.approx(expected, rel=1e-5)
    # (Of unknown inputs the labels do not matter.)
    model.calibrate(unknown=(mixed_x, mixed_y + 90), false_positive_rate=0.1)
    threshold = model.threshold
    for labels, message in (
        (np.eye(3)[y], "One-hot labels are not supported"),
        (np.where(y == 2, 99, y), "Label 99 at position 2 is out of range"),
        (y + 0.5, "Label 0.5 at position 0 is not a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            model.calibrate((x, labels), true_positive_rate=0.9)
        assert model.threshold == threshold


def test_calibration_by_false_positive_rate(model_with_unknown):
    model, _, _, unknown = model_with_unknown
    model.calibrate(unknown=unknown, false_positive_rate=0.1)
    accepted = ~model.predict_open_set(unknown).is_unknown
    assert accepted.sum() == np.floor(0.1 * 201) - 1


def test_calibration_uses_whatever_it_is_given(model_with_unknown):
    """P-values are of the known inputs, the accepted share of the unknown."""
    model, x, _, unknown = model_with_unknown
    model.calibrate(x, true_positive_rate=0.9)
    expected = model.predict_open_set(x[:9]).p_value
    for rule in ({"true_positive_rate": 0.8}, {"false_positive_rate": 0.1}):
        model.calibrate(9 * x, true_positive_rate=0.9)
        model.calibrate(x, unknown=unknown, **rule)
        found = model.predict_open_set(x[:9]).p_value
        np.testing.assert_array_equal(found, expected)
        share = model.accepted_shares["unknown"]
        accepted = ~model.predict_open_set(unknown).is_unknown
        assert (share.accepted, share.examples) == (
            accepted.sum(),
            len(unknown),
        )


def test_calibration_by_class(model_with_unknown):
    model, x, _, _ = model_with_unknown
    thresholds = model.calibrate(x, true_positive_rate=0.9, by_class=True)
    out = model.predict_open_set(x)
    for c in range(3):
        own = out.predicted_class_id == c
        accepted = out.unknown_score[own] <= thresholds[c]
        assert accepted.sum() == np.ceil(0.9 * (own.sum() + 1))
        np.testing.assert_array_equal(~out.is_unknown[own], accepted)


def test_bad_calibration(trained_blobs):
    model, x, y = trained_blobs
    before = model.threshold
    for arguments, message in (
        ({}, r"exactly one.*calibrate\(x, y, true_positive_rate=0\.95\)"),
        (
            {"true_positive_rate": 0.9, "false_positive_rate": 0.1},
            "exactly one",
        ),
        *(
            ({"known": x, "true_positive_rate": rate}, r"must be in \(0, 1\)")
            for rate in (0.0, 1.0, -1, np.nan)
        ),
        ({"true_positive_rate": 0.9}, "at least one known"),
        ({"known": x[:0], "true_positive_rate": 0.9}, "at least one known"),
        ({"known": x, "false_positive_rate": 0.1}, "at least one unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            model.calibrate(**arguments)
    assert model.threshold == before


# ---- data -----------------------------------------------------------------


def test_data_of_every_kind_give_the_same(trained_blobs):
    trained, x, y = trained_blobs

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            rows = slice(40 * index, 40 * index + 40)
            return x[rows], y[rows]

    def generator():
        for i in range(6):
            yield Batches()[i]

    sources = [
        lambda: (x, y),
        lambda: (x.tolist(), y.tolist()),
        lambda: Batches(workers=0),
        generator,
        lambda: [Batches()[i] for i in range(6)],
    ]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        sources.append(
            lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
        )
    expected = trained.predict_open_set(x)
    for source in sources:
        model = make(trained.classifier, source(), score="gamma", copy=False)
        np.testing.assert_allclose(model.centers, trained.centers, rtol=1e-5)
        threshold = model.calibrate(source(), true_positive_rate=0.9)
        assert threshold == pytest.approx(trained.threshold, rel=1e-4)
        found = trained.predict_open_set(source())
        np.testing.assert_array_equal(found.class_id, expected.class_id)
        assert trained.evaluate(source())["accuracy"] == 1.0
        if not isinstance(source(), tuple):
            with pytest.raises(ValueError, match="contains its own.*leave y"):
                trained.evaluate(source(), y)
    for batch_size in (0, -1, 2.5):
        with pytest.raises(ValueError, match="batch_size must be a whole num"):
            trained.predict_open_set(x, batch_size=batch_size)
    # A row may be a tuple.
    found = trained.predict_open_set([tuple(row) for row in x])
    np.testing.assert_array_equal(found.class_id, expected.class_id)


def test_data_sets_without_end_are_refused(trained_blobs):
    model, x, y = trained_blobs

    class Endless(keras.utils.PyDataset):
        num_batches = None

        def __getitem__(self, index):
            return x[:40], y[:40]

    sets = [Endless()]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        once = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
        sets += [once.repeat(), once.repeat().map(lambda x, y: (x, y))]
        found = model.predict(sets[1], steps=2, verbose=0)
        assert len(found["class_id"]) == 64
        assert model.evaluate(sets[2].take(4))["accuracy"] == 1.0
    for data in sets:
        for call in (
            lambda data: make(model.classifier, data, score="gamma"),
            lambda data: model.calibrate(data, true_positive_rate=0.9),
            model.evaluate,
            model.predict_open_set,
            model.predict,
        ):
            with pytest.raises(
                ValueError, match=r"infinite.*repeat.*take\(n\)"
            ):
                call(data)


def test_bad_labels_in_data_sets(trained_blobs):
    model, x, y = trained_blobs
    y = y.copy()
    y[25] = 9
    batches = [(x[i : i + 10], y[i : i + 10]) for i in (0, 10, 20)]
    for call in (
        lambda data: make(model.classifier, data, score="gamma"),
        lambda data: model.calibrate(data, true_positive_rate=0.9),
        model.evaluate,
    ):
        with pytest.raises(ValueError, match="Label 9 at batch 2, position 5"):
            call(batches)


def test_inputs_that_are_not_finite_are_named(trained_blobs):
    model, x, y = trained_blobs
    x = x.copy()
    x[130, 2] = np.nan
    with pytest.raises(
        ValueError, match="batch starting at 128, position 2 contains NaN"
    ):
        model.predict_open_set(x, batch_size=128)
    with pytest.raises(ValueError, match="position 130 contains NaN"):
        make(model.classifier, (x, y), score="gamma")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3e38, "Logits must be finite.*position 3"),
        # Logits of 1e20 are finite, their squares are not.
        (1e20, "Distances must be.*position 3"),
    ],
)
def test_outputs_that_are_infinite_are_named(trained_blobs, value, message):
    model, x, _ = trained_blobs
    x = x.copy()
    x[3] = value
    with pytest.raises(ValueError, match=message):
        model.predict_open_set(x)


def test_nothing_to_predict(trained_blobs):
    with pytest.raises(ValueError, match="no inputs"):
        trained_blobs[0].predict_open_set(np.zeros((0, 5), "float32"))


# ---- what is refused ------------------------------------------------------


def test_it_is_not_trained(trained_blobs):
    """The message has the lines to write instead, and they are right."""
    model, x, y = trained_blobs
    for call in (
        lambda: model.compile("sgd", cac_tf.losses.CACLoss()),
        lambda: model.fit(x, y, epochs=2),
        lambda: model.train_on_batch(x, y),
    ):
        with pytest.raises(RuntimeError, match="cannot be trained") as caught:
            call()
        _, _, lines = str(caught.value).partition("make a new one: ")
        assert lines.count(";") == 2
        names = {
            "classifier": keras.Sequential(
                [keras.Input([5]), keras.layers.Dense(3)]
            ),
            "optimizer": keras.optimizers.SGD(0.1),
            "cac_tf": cac_tf,
            "OpenSetClassifier": cac_tf.OpenSetClassifier,
            "x": x,
            "y": y,
        }
    *steps, last = lines.rstrip(".").split("; ")
    for step in steps:
        eval(step, names)
    made = eval(last, names)
    assert made.score.name == "vim" and made.class_names == ("0", "1", "2")
    assert model.trainable_weights == []


def test_a_model_keeps_its_score(trained_blobs):
    model, *_ = trained_blobs
    with pytest.raises(AttributeError, match=r"model\.with_score\("):
        model.score = "max_logit"
    assert model.score.name == "gamma"


@pytest.mark.parametrize(
    "names, message",
    [
        (["a"], "at least two"),
        ([], "at least two"),
        (["a", "b", "a"], "these are repeated: a"),
        (["a", "b", "unknown"], "cannot be named 'unknown'"),
        (["a", "b", ""], "non-empty"),
        (["a", "b", 3], "must be non-empty strings"),
        ("abc", "must be a list"),
    ],
)
def test_bad_class_names(names, message):
    classifier = small_classifier()
    with pytest.raises(ValueError, match=message):
        cac_tf.OpenSetClassifier(classifier, names)
    with pytest.raises(ValueError, match=message):
        make(classifier, np.zeros((3, 5)), np.arange(3), class_names=names)


def test_scores_that_are_refused():
    classifier = small_classifier()
    for score, message in (
        (
            "maximum",
            "Unknown score 'maximum'.* Available: .*gamma, gen, knn, .*vim",
        ),
        ("max_logits", "did you mean 'max_logit'"),
        ("vim", "'vim' has not been fitted"),
    ):
        with pytest.raises(ValueError, match=message):
            cac_tf.OpenSetClassifier(classifier, list("abc"), score)
    with pytest.raises(ValueError, match="not the statistics of.*'gamma'"):
        cac_tf.OpenSetClassifier(
            classifier, list("abc"), statistics={"mean": np.zeros(3)}
        )


# ---- test-time augmentation -----------------------------------------------


@functools.cache
def on_images():
    """A random classifier on pictures that are not symmetric; its data."""
    keras.utils.set_random_seed(0)
    classifier = keras.Sequential(
        [
            keras.Input([6, 5, 1]),
            cac_tf.layers.ImagePreprocessing(6, 5),
            # Not symmetric either: mirrored is the raw image.
            keras.layers.ZeroPadding2D(((0, 0), (2, 0))),
            keras.layers.Flatten(name="features"),
            keras.layers.Dense(3),
        ]
    )
    x = np.random.default_rng(0).uniform(0, 255, (90, 6, 5, 1))
    x = np.float32(x)
    # So that every class has examples that are right.
    return classifier, x, classifier.predict(x, verbose=0).argmax(axis=1)


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*anchors as centers")
        yield


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("score", ["gamma", "vim"])
def test_two_views_are_means_over_the_mirror_image(score, tmp_path):
    classifier, x, y = on_images()
    one = make(classifier, (x, y), score=score)
    two = make(classifier, (x, y), score=score, tta="flip")
    # Centers and statistics are those of the images as they are.
    np.testing.assert_array_equal(two.centers, one.centers)
    for name, value in one.statistics.items():
        np.testing.assert_array_equal(two.statistics[name], value)
    plain = one.predict(x, verbose=0)
    mirrored = one.predict(x[:, :, ::-1], verbose=0)
    both = two.predict(x, verbose=0)
    for name in ("logits", "features"):
        np.testing.assert_allclose(
            both[name], (plain[name] + mirrored[name]) / 2, atol=1e-5
        )
    d = oracle.distances(
        (plain["logits"] + mirrored["logits"]) / 2, one.centers
    )
    np.testing.assert_allclose(both["distances"], d, rtol=1e-4)
    # An image and its mirror image are one.
    np.testing.assert_allclose(
        two.predict_scores(x[:, :, ::-1]).unknown_score,
        both["unknown_score"],
        rtol=1e-4,
        atol=1e-5,
    )
    ((single, *_),) = two.iterate_outputs(
        x, batch_size=100, names=("features",), single_view=True
    )
    np.testing.assert_allclose(single["features"], plain["features"], atol=1e-5)
    two.calibrate(x, true_positive_rate=0.9)
    two.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.tta == "flip"
    same = keras.Sequential([keras.Input([6, 5, 1]), keras.layers.Identity()])
    np.testing.assert_allclose(
        two.with_backbone(same).predict_scores(x).unknown_score,
        both["unknown_score"],
        rtol=1e-5,
        atol=1e-6,
    )
    np.testing.assert_array_equal(
        again.predict_open_set(x).class_id, two.predict_open_set(x).class_id
    )
    assert two.with_score("max_logit").tta == "flip"
    other = two.with_score("max_logit", tta=None)
    np.testing.assert_allclose(
        other.predict_scores(x).logits, plain["logits"], atol=1e-5
    )


def test_bad_tta():
    with pytest.raises(ValueError, match="tta must be None or "):
        cac_tf.OpenSetClassifier(on_images()[0], list("abc"), tta="rotate")
    with pytest.raises(ValueError, match="is for images"):
        cac_tf.OpenSetClassifier(small_classifier(), list("abc"), tta="flip")


# ---- fitting scores -------------------------------------------------------


def test_several_scores_are_fitted_in_one_pass(trained_blobs):
    """One that cannot be fitted leaves the others alone."""
    model, x, y = trained_blobs
    rules = [scores.get(n) for n in ("class_z_score", "knn", "energy")]
    rules.append(scores.KNN(10**6, 10**6, name="too many"))
    statistics, problems = model.fit_scores(rules, x, y)
    assert list(problems) == ["too many"]
    assert "1000000 neighbours" in str(problems["too many"])
    assert list(statistics) == ["energy", "class_z_score", "knn"]
    assert statistics["energy"] == {}
    alone, _ = model.fit_scores([scores.get("class_z_score")], x, y)
    logits = np.float64(model.predict_scores(x).logits)
    own = [logits[(y == c) & (logits.argmax(axis=1) == c), c] for c in range(3)]
    variances = moderated_variances(
        np.array([one.var() for one in own]), np.array(list(map(len, own)))
    )
    expected = {
        "mean": [one.mean() for one in own],
        "deviation": np.sqrt(variances),
    }
    for found in (statistics, alone):
        for name, values in expected.items():
            np.testing.assert_allclose(
                found["class_z_score"][name], values, rtol=1e-5
            )
    with pytest.raises(ValueError, match="1000000 neighbours"):
        model.with_score(rules[-1], x, y)
    with pytest.raises(ValueError, match="different names; got knn, knn"):
        model.fit_scores([scores.KNN(1), scores.KNN(2)], x, y)


def test_another_score_makes_another_model(trained_blobs):
    model, x, y = trained_blobs
    before = model.threshold
    other = model.with_score("max_logit")
    assert other.threshold is None
    assert (model.score.name, model.threshold) == ("gamma", before)
    assert other.classifier is model.classifier
    one, two = model.predict_scores(x), other.predict_scores(x)
    np.testing.assert_allclose(two.distances, one.distances, rtol=1e-6)
    np.testing.assert_allclose(
        two.unknown_score, -one.logits.max(axis=1), rtol=1e-6
    )
    few = model.with_score("knn", x[:100], y[:100])
    all_rows = model.with_score("knn", (x, y))
    assert few.predict_scores(x).unknown_score.max() > 1e-5
    # Each is its own neighbour.
    assert all_rows.predict_scores(x).unknown_score.max() < 1e-6
