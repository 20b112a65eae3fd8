# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest
from scipy import special

from cac_tf import losses
from cac_tf import metrics
from cac_tf import scores
from cac_tf.metrics.streaming import AnchorLoss
from cac_tf.metrics.streaming import CrossEntropy
from cac_tf.metrics.streaming import TupletLoss
from cac_tf.scores.energy import Energy
from cac_tf.scores.unknown_class import UnknownClass
from tests import oracle
from tests.conftest import blobs


@pytest.fixture
def batches(rng):
    """Batches of labels (-1: unknown), logits and weights."""
    result = []
    for rows in (32, 32, 7):
        labels = rng.integers(-1, 4, rows)
        logits = np.float32(3 * rng.standard_normal((rows, 4)))
        known = labels >= 0
        logits[known, labels[known]] += 3
        result.append((labels, logits, np.float32(rng.random(rows))))
    return result


def streamed(metric, batches, weighted=False):
    for labels, logits, weights in batches:
        metric.update_state(labels, logits, weights if weighted else None)
    return float(metric.result())


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_known_inputs(batches, weighted):
    labels, logits, weights = map(np.concatenate, zip(*batches, strict=True))
    known = labels >= 0
    y, z = labels[known], np.float64(logits[known])
    w = weights[known] if weighted else np.ones(known.sum())
    d = oracle.distances(z, 5 * np.eye(4))
    cross_entropy = special.logsumexp(z, axis=1) - z[np.arange(len(y)), y]
    for metric, values in (
        (metrics.KnownAccuracy(), z.argmax(axis=1) == y),
        (CrossEntropy(), cross_entropy),
        (AnchorLoss(magnitude=5), oracle.anchor_loss(y, d)),
        (TupletLoss(magnitude=5), oracle.tuplet_loss(y, d)),
    ):
        assert metric.READS == ("logits",)
        actual = streamed(metric, batches, weighted)
        assert actual == pytest.approx(np.average(values, weights=w), rel=1e-5)


def known_and_unknown(rng, rows=3000, num_classes=3):
    """Labels (-1: unknown), and outputs whose scores span magnitudes."""
    labels = rng.integers(-1, num_classes, rows)
    known = np.flatnonzero(labels >= 0)
    logits = np.float32(3 * rng.standard_normal((rows, num_classes)))
    noise = np.float32(rng.gamma(1.0, 0.3, (len(known), 1)))
    logits[known] *= noise
    own = np.float32(rng.gamma(4.0, 2.0, len(known)))
    logits[known, labels[known]] += own
    reconstruction = np.float32(rng.uniform(0, 3, (rows, 2)))
    return labels, {"logits": logits, "reconstruction": reconstruction}


def distances(outputs):
    return oracle.distances(outputs["logits"], 8 * np.eye(3))


class Mixed(scores.Score):
    """Of two outputs, one of them no output of ours."""

    NAME, READS = "mixed", ("logits", "reconstruction")

    def call(self, logits, reconstruction):
        return keras.ops.sum(reconstruction, axis=-1) - keras.ops.max(
            logits, axis=-1
        )


READS = ("logits",)
# The unknown score of outputs by name, in float64.
SCORES = {
    "gamma": lambda o: oracle.gamma(distances(o)).min(axis=1),
    "min_distance": lambda o: distances(o).min(axis=1),
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
    rule = Mixed() if name == "mixed" else name
    metric = metrics.OpenSetAUROC(score=rule, magnitude=8)
    assert set(metric.READS) == set(Mixed.READS if name == "mixed" else READS)
    for i in range(9):
        read = {n: outputs[n][i::9] for n in metric.READS}
        if len(read) == 1:
            (read,) = read.values()
        metric.update_state(labels[i::9], read)
    assert float(metric.result()) == pytest.approx(exact, abs=2e-3)
    metric.reset_state()
    assert float(metric.result()) == 0.0


def test_auroc_of_scores_that_are_almost_0(rng):
    """Of anchors far apart, as of magnitudes in the paper's range."""
    labels = rng.integers(-1, 3, 3000)
    logits = np.float32(rng.normal(0, 2, (3000, 3)))
    logits[labels >= 0] += 20 * np.eye(3, dtype="float32")[labels[labels >= 0]]
    logits[labels < 0] += [17, 0, 0]
    known = labels >= 0
    gamma = oracle.gamma(oracle.distances(logits, 20 * np.eye(3))).min(axis=1)
    exact = metrics.auroc(gamma[known], gamma[~known])
    assert np.median(gamma) < 1e-8 and 0.6 < exact < 0.95
    metric = metrics.OpenSetAUROC(magnitude=20)
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(exact, abs=2e-3)


def test_tuplet_loss_far_from_all_anchors():
    """Where the distances themselves round; as the loss."""
    logits = np.float32([[1e5, -1e5, 1e5 + 1]])
    metric = TupletLoss()
    metric.update_state([0], logits)
    d = oracle.distances(logits, 10 * np.eye(3))
    exact = np.log1p(np.exp(d[0, 0] - d[0, 1:]).sum())
    assert float(metric.result()) == pytest.approx(exact, rel=1e-6)


def test_auroc_of_scores_that_crowd_at_minus_one(rng):
    labels, _ = known_and_unknown(rng)
    logits = np.float32(2 * rng.standard_normal((len(labels), 4)))
    rows = np.flatnonzero(labels >= 0)
    logits[rows, labels[rows]] += 14
    logits[labels < 0, 1] += 9
    rule = UnknownClass()
    score = np.asarray(rule(logits))
    assert (score < -0.99).mean() > 0.8
    exact = metrics.auroc(score[labels >= 0], score[labels < 0])
    assert 0.7 < exact < 0.99
    metric = metrics.OpenSetAUROC(score=rule)
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_class_indices_beyond_those_of_half_precision(dtype):
    logits = np.zeros((1, 300), "float32")
    logits[0, 257] = 9
    for metric in (metrics.KnownAccuracy, AnchorLoss):
        found = metric(dtype=dtype)
        found.update_state([257], logits)
        assert float(found.result()) == 1.0


def test_auroc_takes_nan_for_unknown():
    """As a decision rejects it, whatever the threshold is."""
    labels = np.array([0, 0, -1, -1])
    logits = np.float32([[9, 0], [0, 8], [3, 3], [7, np.nan]])
    metric = metrics.OpenSetAUROC("min_distance")
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_unknown_rows_of_any_values_do_not_count(value):
    labels = np.array([0, 1, -1])
    logits = np.float32([[1, 14], [2, 3], [value, 8]])
    for kind in (
        metrics.KnownAccuracy,
        AnchorLoss,
        TupletLoss,
        CrossEntropy,
    ):
        metric, wanted = kind(), kind()
        metric.update_state(labels, logits, np.float32([3, 1, value]))
        wanted.update_state(labels[:2], logits[:2], np.float32([3, 1]))
        assert float(metric.result()) == pytest.approx(float(wanted.result()))


def test_auroc_takes_logits_by_their_name_labels_in_columns_and_weights(rng):
    """A weight of 2 is the row twice, and one of 0 no row."""
    labels, outputs = known_and_unknown(rng, rows=400)
    logits, weights = outputs["logits"], rng.integers(0, 3, 400)
    one, other = metrics.OpenSetAUROC(), metrics.OpenSetAUROC()
    one.update_state(labels[:, None], outputs, np.float32(weights)[:, None])
    other.update_state(
        np.repeat(labels, weights), np.repeat(logits, weights, axis=0)
    )
    assert float(one.result()) > 0.5
    assert float(one.result()) == pytest.approx(float(other.result()), rel=1e-5)
    for rows in (labels >= 0, labels < 0):
        metric = metrics.OpenSetAUROC()
        metric.update_state(labels[rows], logits[rows])
        assert float(metric.result()) == 0.0


def test_auroc_of_a_score_that_is_fitted_later():
    for name in ("vim", scores.OpenMax()):
        with pytest.raises(ValueError, match="is fitted after"):
            metrics.OpenSetAUROC(score=name)
    with pytest.raises(ValueError, match="Unknown score 'gama'; did you mean"):
        metrics.OpenSetAUROC(score="gama")


def test_auroc_is_saved_with_its_score():
    metric = metrics.OpenSetAUROC(Energy(2.5), 3.0, 500, name="mine")
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(metric)
    )
    assert copy.score.get_config() == metric.score.get_config()
    assert copy.get_config() == metric.get_config()
    assert (copy.name, copy.num_thresholds) == ("mine", 500)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.KnownAccuracy,
        AnchorLoss,
        TupletLoss,
        CrossEntropy,
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
    """In plain Keras: loss and metrics are those of the known inputs alone."""
    x, y = blobs(rng)
    far = np.float32(rng.normal(-2, 1, (100, 5)))
    mixed_x = np.concatenate([far[:50], x, far[50:]])
    mixed_y = np.concatenate([np.full(50, -1), y, np.full(50, -1)])
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    names = ("gamma", "min_distance", "max_logit")
    model.compile(
        keras.optimizers.SGD(0.1),
        losses.CACLoss(8, ignore_class=-1, reduction="sum"),
        metrics=[
            metrics.KnownAccuracy(),
            AnchorLoss(8),
            CrossEntropy(),
            *(metrics.OpenSetAUROC(n, 8, name=n) for n in names),
        ],
    )
    options = {"batch_size": 400, "verbose": 0}
    history = model.fit(
        x, y, epochs=5, validation_data=(mixed_x, mixed_y), **options
    ).history
    mixed = model.evaluate(mixed_x, mixed_y, return_dict=True, **options)
    known = model.evaluate(x, y, return_dict=True, **options)
    for name in ("loss", "accuracy", "anchor_loss", "cross_entropy"):
        assert mixed[name] == pytest.approx(known[name], rel=1e-5)
    outputs = {"logits": np.float64(model.predict(mixed_x, verbose=0))}
    for name in names:
        score = SCORES[name](outputs)
        exact = metrics.auroc(score[mixed_y >= 0], score[mixed_y < 0])
        assert mixed[name] == pytest.approx(exact, abs=5e-3)
    for name, value in mixed.items():
        assert history[f"val_{name}"][-1] == pytest.approx(value, rel=1e-5)
