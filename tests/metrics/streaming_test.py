# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest
from scipy import special

from cac_tf import metrics
from cac_tf import scores
from tests import oracle
from tests.conftest import blobs
from tests.conftest import small_classifier


@pytest.fixture
def batches(rng):
    """Batches of labels (-1: unknown), distances and weights."""
    result = []
    for rows in (32, 32, 7):
        labels = rng.integers(-1, 4, rows)
        distances = np.float32(14 * rng.random((rows, 4)))
        known = labels >= 0
        distances[known, labels[known]] *= 0.5
        result.append((labels, distances, np.float32(rng.random(rows))))
    return result


def streamed(metric, batches, weighted=False):
    for labels, distances, weights in batches:
        metric.update_state(labels, distances, weights if weighted else None)
    return float(metric.result())


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_known_inputs(batches, weighted):
    labels, distances, weights = map(np.concatenate, zip(*batches, strict=True))
    known = labels >= 0
    y, d = labels[known], np.float64(distances[known])
    w = weights[known] if weighted else np.ones(known.sum())
    for metric, values in (
        (metrics.NearestCenterAccuracy(), d.argmin(axis=1) == y),
        (metrics.AnchorLoss(), oracle.anchor_loss(y, d)),
        (metrics.TupletLoss(), oracle.tuplet_loss(y, d)),
    ):
        actual = streamed(metric, batches, weighted)
        assert actual == pytest.approx(np.average(values, weights=w), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_known_inputs_of_logits(batches, weighted):
    labels, values, weights = map(np.concatenate, zip(*batches, strict=True))
    known = labels >= 0
    y, z = labels[known], np.float64(values[known])
    w = weights[known] if weighted else np.ones(known.sum())
    cross_entropy = special.logsumexp(z, axis=1) - z[np.arange(len(y)), y]
    for metric, rows in (
        (metrics.LargestLogitAccuracy(), z.argmax(axis=1) == y),
        (metrics.CrossEntropy(), cross_entropy),
    ):
        assert metric.READS == ("logits",)
        actual = streamed(metric, batches, weighted)
        assert actual == pytest.approx(np.average(rows, weights=w), rel=1e-5)


def known_and_unknown(rng, rows=3000, num_classes=3):
    """Labels (-1: unknown), and outputs whose scores span magnitudes."""
    labels = rng.integers(-1, num_classes, rows)
    known = labels >= 0
    distances = np.float32(rng.uniform(5, 14, (rows, num_classes)))
    distances[known, labels[known]] = np.float32(
        rng.gamma(1.0, 3.0, known.sum())
    )
    logits = np.float32(3 * rng.standard_normal((rows, num_classes)))
    logits[known, labels[known]] += np.float32(rng.gamma(1.0, 6.0, known.sum()))
    return labels, {
        "distances": distances,
        "gamma": np.float32(oracle.gamma(np.float64(distances))),
        "logits": logits,
        "reconstruction": distances[:, :2],
    }


class Mixed(scores.Score):
    """Of two outputs, one of them no output of ours."""

    NAME, READS = "mixed", ("logits", "reconstruction")

    def call(self, logits, reconstruction):
        return keras.ops.sum(reconstruction, axis=-1) - keras.ops.max(
            logits, axis=-1
        )


# The unknown score of outputs by name, in float64.
SCORES = {
    "gamma": lambda o: o["gamma"].min(axis=1),
    "min_distance": lambda o: o["distances"].min(axis=1),
    "max_logit": lambda o: -o["logits"].max(axis=1),
    "energy": lambda o: -special.logsumexp(o["logits"], axis=1),
    "max_softmax": lambda o: np.sort(
        special.softmax(o["logits"], axis=1), axis=1
    )[:, :-1].sum(axis=1),
    "mixed": lambda o: o["reconstruction"].sum(axis=1) - o["logits"].max(1),
}


@pytest.mark.parametrize("name", SCORES)
def test_auroc_is_close_to_the_exact_one(rng, name):
    labels, outputs = known_and_unknown(rng)
    known = labels >= 0
    score = SCORES[name]({k: np.float64(v) for k, v in outputs.items()})
    exact = metrics.auroc(score[known], score[~known])
    assert 0.55 < exact < 0.99
    metric = metrics.OpenSetAUROC(score=Mixed() if name == "mixed" else name)
    assert metric.READS == metric.score.READS
    for i in range(9):
        read = {n: outputs[n][i::9] for n in metric.READS}
        if len(read) == 1:
            (read,) = read.values()
        metric.update_state(labels[i::9], read)
    assert float(metric.result()) == pytest.approx(exact, abs=2e-3)
    metric.reset_state()
    assert float(metric.result()) == 0.0


def test_auroc_of_scores_that_crowd_at_minus_one(rng):
    labels, _ = known_and_unknown(rng)
    logits = np.float32(2 * rng.standard_normal((len(labels), 4)))
    rows = np.flatnonzero(labels >= 0)
    logits[rows, labels[rows]] += 14
    logits[labels < 0, 1] += 9
    rule = scores.UnknownClass()
    score = np.asarray(rule(logits))
    assert (score < -0.99).mean() > 0.8
    exact = metrics.auroc(score[labels >= 0], score[labels < 0])
    assert 0.7 < exact < 0.99
    metric = metrics.OpenSetAUROC(score=rule)
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "metric", [metrics.NearestCenterAccuracy, metrics.AnchorLoss]
)
def test_class_indices_beyond_those_of_half_precision(metric, dtype):
    distances = np.full((1, 300), 10, "float32")
    distances[0, 257] = 1
    found = metric(dtype=dtype)
    found.update_state([257], distances)
    assert float(found.result()) == 1.0


def test_auroc_takes_nan_for_unknown():
    """As a decision rejects it, whatever theta is."""
    labels = np.array([0, 0, -1, -1])
    distances = np.float32([[1, 14], [2, 13], [9, 8], [7, np.nan]])
    metric = metrics.OpenSetAUROC("min_distance")
    metric.update_state(labels, distances)
    assert float(metric.result()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_unknown_rows_of_any_values_do_not_count(value):
    labels = np.array([0, 1, -1])
    distances = np.float32([[1, 14], [2, 3], [value, 8]])
    for metric in (metrics.AnchorLoss(), metrics.TupletLoss()):
        metric.update_state(labels, distances)
        wanted = type(metric)()
        wanted.update_state(labels[:2], distances[:2])
        assert float(metric.result()) == pytest.approx(float(wanted.result()))


def test_auroc_takes_one_output_by_its_name_too(rng):
    labels, outputs = known_and_unknown(rng, rows=300)
    one, other = metrics.OpenSetAUROC(), metrics.OpenSetAUROC()
    one.update_state(labels, outputs["gamma"])
    other.update_state(labels, outputs)
    assert float(one.result()) == float(other.result()) > 0.5


def test_auroc_with_sample_weights(rng):
    """A weight of 2 is the row twice, and one of 0 no row."""
    labels, outputs = known_and_unknown(rng, rows=400)
    gamma, weights = outputs["gamma"], rng.integers(0, 3, 400)
    one, other = metrics.OpenSetAUROC(), metrics.OpenSetAUROC()
    one.update_state(labels, gamma, np.float32(weights))
    other.update_state(np.repeat(labels, weights), np.repeat(gamma, weights, 0))
    assert float(one.result()) == pytest.approx(float(other.result()), rel=1e-5)


def test_auroc_of_labels_in_columns_and_of_one_kind_alone(rng):
    labels, outputs = known_and_unknown(rng, rows=200)
    one, other = metrics.OpenSetAUROC(), metrics.OpenSetAUROC()
    one.update_state(labels, outputs["gamma"])
    other.update_state(labels[:, None], outputs["gamma"])
    assert float(one.result()) == float(other.result())
    for rows in (labels >= 0, labels < 0):
        metric = metrics.OpenSetAUROC()
        metric.update_state(labels[rows], outputs["gamma"][rows])
        assert float(metric.result()) == 0.0


def test_auroc_of_a_score_that_is_fitted_later():
    for name in ("vim", scores.OpenMax()):
        with pytest.raises(ValueError, match="is fitted after"):
            metrics.OpenSetAUROC(score=name)
    with pytest.raises(ValueError, match="no score 'gama'; did you mean"):
        metrics.OpenSetAUROC(score="gama")


def test_auroc_is_saved_with_its_score():
    metric = metrics.OpenSetAUROC(scores.Energy(2.5), 500, name="mine")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(metric)
    )
    assert copy.score.get_config() == metric.score.get_config()
    assert (copy.name, copy.num_thresholds) == ("mine", 500)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.NearestCenterAccuracy,
        metrics.AnchorLoss,
        metrics.TupletLoss,
        metrics.LargestLogitAccuracy,
        metrics.CrossEntropy,
        metrics.OpenSetAUROC,
    ],
)
def test_survives_serialization(metric, batches):
    original = metric(name="mine")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(original)
    )
    assert copy.name == "mine"
    assert streamed(copy, batches) == streamed(original, batches)


def test_unknown_validation_data_weigh_nothing_but_in_the_auroc(rng):
    """In `fit`: loss and accuracy are those of the known inputs alone."""
    x, y = blobs(rng)
    far = np.float32(rng.normal(-2, 1, (100, 5)))
    mixed_x = np.concatenate([far[:50], x, far[50:]])
    mixed_y = np.concatenate([np.full(50, -1), y, np.full(50, -1)])
    model = small_classifier()
    model.compile(
        optimizer="sgd",
        loss=model.loss,
        metrics=[
            "accuracy",
            metrics.AnchorLoss(),
            metrics.CrossEntropy(),
            metrics.OpenSetAUROC(),
            metrics.OpenSetAUROC(score="min_distance", name="by_distance"),
            metrics.OpenSetAUROC(score="max_logit", name="by_logit"),
            {"logits": ["sparse_categorical_accuracy"]},
        ],
    )
    history = model.fit(
        x, y, epochs=8, verbose=0, validation_data=(mixed_x, mixed_y)
    ).history
    mixed = model.evaluate(mixed_x, mixed_y, verbose=0, return_dict=True)
    known = model.evaluate(x, y, verbose=0, return_dict=True)
    for name in (
        "loss",
        "accuracy",
        "anchor_loss",
        "cross_entropy",
        "sparse_categorical_accuracy",
    ):
        assert mixed[name] == pytest.approx(known[name], rel=1e-5)
        assert history[f"val_{name}"][-1] == pytest.approx(mixed[name])
    outputs = {
        name: np.float64(value)
        for name, value in model.predict(mixed_x, verbose=0).items()
    }
    for metric, name in (
        ("auroc", "gamma"),
        ("by_distance", "min_distance"),
        ("by_logit", "max_logit"),
    ):
        score = SCORES[name](outputs)
        exact = metrics.auroc(score[mixed_y >= 0], score[mixed_y < 0])
        assert mixed[metric] == pytest.approx(exact, abs=5e-3)
        assert history[f"val_{metric}"][-1] == pytest.approx(mixed[metric])
