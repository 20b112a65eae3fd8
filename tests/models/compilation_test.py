# SPDX-License-Identifier: Apache-2.0
"""What `compile` takes and refuses, and the total loss that comes of it."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

import cac_tf
from cac_tf import losses
from cac_tf import metrics
from cac_tf import ops as fused_ops
from cac_tf.losses import loss as output_losses
from cac_tf.models import compilation
from tests import oracle
from tests.conftest import blobs
from tests.conftest import small_classifier
from tests.execution import BACKEND

STOCK = keras.losses.SparseCategoricalCrossentropy


def logits_loss(**options):
    return STOCK(from_logits=True, **options)


@keras.saving.register_keras_serializable(package="CacTfTestsCompilation")
class Objectosphere(losses.Loss):
    """Of known classes the cross-entropy, of negatives that of all classes.

    Features of known classes are to be longer than `length`, those of
    negatives short.
    """

    READS, TAKES_NEGATIVES = ("logits", "features"), True
    LENGTH = 1.5

    def call(self, y_true, y_pred):
        labels = ops.reshape(y_true, (-1,))
        is_known = output_losses.is_known(labels)
        logits, features = y_pred["logits"], y_pred["features"]
        own = losses.cross_entropy(output_losses.known_labels(labels), logits)
        even = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        length = ops.sqrt(ops.sum(ops.square(features), axis=-1))
        short = ops.square(ops.relu(self.LENGTH - length))
        return ops.where(is_known, own + short, even + ops.square(length))


def cross_entropy_oracle(labels, logits):
    logits = np.float64(logits)
    return (
        special.logsumexp(logits, axis=1) - logits[range(len(labels)), labels]
    )


def objectosphere_oracle(labels, logits, features):
    """One example at a time."""
    rows = []
    for y, z, f in zip(labels, logits, np.float64(features), strict=True):
        length = np.linalg.norm(f)
        if y == -1:
            rows.append(special.logsumexp(z) - np.mean(z) + length**2)
        else:
            short = max(0.0, Objectosphere.LENGTH - length) ** 2
            rows.append(special.logsumexp(z) - z[y] + short)
    return np.array(rows)


def weighted_mean(rows, weights, reduction="sum_over_batch_size"):
    """Keras' reductions."""
    total = (rows * weights).sum()
    return total / {
        "sum_over_batch_size": len(rows),
        "sum": 1.0,
        "mean_with_sample_weight": weights.sum(),
    }.get(reduction)


# ---- what is refused ------------------------------------------------------


class Silent(losses.Loss):
    """Does not say what it reads."""

    def call(self, y_true, y_pred):
        return y_pred


class Needy(losses.Loss):
    READS = ("logits", "reconstruction")

    def call(self, y_true, y_pred):
        return ops.sum(y_pred["reconstruction"], axis=-1)


class NeedyMetric(keras.metrics.Mean):
    READS = ("reconstruction",)


NOT_SAID = r"does not say which output.*loss=\{'logits': .*cac_tf\.losses"
ON_DISTANCES = r"distances are small.*'logits'.*cac_tf\.losses"
PROBABILITIES = r"probabilities.*from_logits=True"


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"loss": "sparse_categorical_crossentropy"},
            "loss sparse_categorical_crossentropy " + NOT_SAID,
        ),
        ({"loss": "mse"}, "loss mse " + NOT_SAID),
        (
            {"loss": logits_loss()},
            "loss SparseCategoricalCrossentropy " + NOT_SAID,
        ),
        (
            {"loss": [losses.CACLoss(), logits_loss()]},
            "loss SparseCategoricalCrossentropy " + NOT_SAID,
        ),
        ({"loss": Silent()}, "loss Silent " + NOT_SAID),
        (
            {"loss": {"distances": logits_loss()}},
            "sparse_categorical_crossentropy.*" + ON_DISTANCES,
        ),
        (
            {"loss": {"distances": "sparse_categorical_crossentropy"}},
            "sparse_categorical_crossentropy.*" + ON_DISTANCES,
        ),
        ({"loss": {"logits": STOCK()}}, PROBABILITIES),
        (
            {"loss": {"logits": "sparse_categorical_crossentropy"}},
            PROBABILITIES,
        ),
        (
            {"loss": {"logits": losses.CACLoss()}},
            "CACLoss reads distances, not 'logits': pass it without",
        ),
        (
            {"loss": {"logits": Needy()}},
            "Needy reads logits, reconstruction, not 'logits'",
        ),
        (
            {"loss": Needy()},
            "loss Needy reads 'reconstruction'.*features, logits.*a dict with "
            "'reconstruction'",
        ),
        (
            {"loss": {"latents": logits_loss()}},
            "reads 'latents'.*a dict with 'latents'",
        ),
        (
            {"metrics": [NeedyMetric(name="mine")]},
            "metric 'mine' reads 'reconstruction'.*a dict with",
        ),
        (
            {"metrics": {"latents": ["mse"]}},
            "metric .* reads 'latents'.*a dict with 'latents'",
        ),
        (
            {"metrics": [keras.metrics.SparseCategoricalAccuracy()]},
            r"'sparse_categorical_accuracy' does not say which output.*"
            r"metrics=\{'logits': \[metric\]\}.*cac_tf\.metrics",
        ),
        (
            {"weighted_metrics": ["mse"]},
            r"'mse' does not say which output.*metrics=\{'logits'",
        ),
        (
            {"metrics": {"logits": [metrics.AnchorLoss()]}},
            "AnchorLoss reads distances, not 'logits': pass it without",
        ),
        (
            {"metrics": ["accuracy", metrics.NearestCenterAccuracy()]},
            "differ.* names.* accuracy .*twice.*name=",
        ),
        (
            {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]},
            "differ.* names.* accuracy .*twice.*name=",
        ),
        (
            {
                "loss": {
                    "gamma": keras.losses.SparseCategoricalCrossentropy(
                        from_logits=True
                    )
                }
            },
            "but gamma is small there. Name 'logits'",
        ),
        ({"loss_weights": [1.0, 2.0]}, "2 loss_weights for 1 losses"),
        (
            {
                "loss": [losses.CACLoss(), losses.CrossEntropyLoss()],
                "loss_weights": [1.0],
            },
            "1 loss_weights for 2 losses",
        ),
        (
            {"loss": [losses.CACLoss()] * 2, "loss_weights": 0.5},
            "1 loss_weights for 2 losses",
        ),
        (
            {"loss_weights": {"logits": 2.0}},
            "loss_weights names logits, .*no loss does",
        ),
    ],
)
def test_what_is_refused(rng, options, message, is_built):
    """With the remedy; what was compiled before stays in force."""
    model = small_classifier()
    if is_built:
        model.build((None, 5))
    before = (model.loss, model.optimizer, model.get_compile_config())
    with pytest.raises(ValueError, match=f"(?s){message}"):
        model.compile("sgd", **{"loss": losses.CACLoss(), **options})
    assert (model.loss, model.optimizer) == before[:2]
    assert model.get_compile_config() == before[2]
    assert [metric.name for metric in model.metrics] == ["loss", "accuracy"]
    x, y = blobs(rng, rows=6)
    outputs = model(x)
    loss = model.compute_loss(x, y, outputs, training=False)
    expected = oracle.cac_loss(y, np.float64(outputs["distances"])).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_an_output_that_shows_only_when_built(rng):
    """A network that is called by its own code: refused before training."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    for options in ({"loss": Needy()}, {"metrics": [NeedyMetric()]}):
        model = cac_tf.OpenSetClassifier(Own(), ["a", "b", "c"])
        model.compile("sgd", **{"loss": losses.CACLoss(), **options})
        x, y = blobs(rng, rows=30)
        with pytest.raises(
            ValueError, match="reads 'reconstruction', which the backbone does"
        ):
            model.fit(x, y, verbose=0)


def test_no_loss(rng):
    x, y = blobs(rng, rows=30)
    model = cac_tf.OpenSetClassifier(
        keras.Sequential([keras.Input([5]), keras.layers.Dense(3)]),
        ["a", "b", "c"],
    )
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"no loss to compute.*loss="):
        model.fit(x, y, verbose=0)


# ---- what is taken --------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "loss_weights", "expected"),
    [
        (None, None, []),
        (losses.CACLoss(), None, [("CACLoss", ("distances",), 1.0)]),
        (losses.CACLoss(), 0.5, [("CACLoss", ("distances",), 0.5)]),
        (
            [losses.CACLoss(), {"logits": logits_loss()}, Needy()],
            [1, 2, 3],
            [
                ("CACLoss", ("distances",), 1.0),
                ("SparseCategoricalCrossentropy", ("logits",), 2.0),
                ("Needy", ("logits", "reconstruction"), 3.0),
            ],
        ),
        (
            {"logits": [logits_loss(), "mse"], "features": "mae"},
            {"features": 0.1},
            [
                ("SparseCategoricalCrossentropy", ("logits",), 1.0),
                ("_OfFunction", ("logits",), 1.0),
                ("_OfFunction", ("features",), 0.1),
            ],
        ),
        (
            {"distances": losses.CACLoss()},
            {"distances": 4},
            [("CACLoss", ("distances",), 4.0)],
        ),
    ],
)
def test_terms(loss, loss_weights, expected):
    found = compilation.terms(loss, loss_weights)
    assert [
        (type(term.loss).__name__, term.reads, term.weight) for term in found
    ] == expected


@pytest.mark.parametrize(
    ("given", "score", "expected"),
    [
        (None, "gamma", []),
        (["accuracy"], "gamma", [("distances", "NearestCenterAccuracy")]),
        ("acc", "max_logit", [("logits", "LargestLogitAccuracy")]),
        (
            {"logits": "accuracy"},
            "gamma",
            [("logits", "LargestLogitAccuracy")],
        ),
        (
            {"distances": "acc", "gamma": "accuracy"},
            "max_logit",
            [
                ("distances", "NearestCenterAccuracy"),
                ("gamma", "NearestCenterAccuracy"),
            ],
        ),
        (
            [metrics.AnchorLoss(), {"logits": ["sparse_categorical_accuracy"]}],
            "gamma",
            [("distances", "AnchorLoss"), ("logits", "MeanMetricWrapper")],
        ),
    ],
)
def test_metrics(given, score, expected):
    found = compilation.metrics(given, None, cac_tf.scores.get(score))
    kinds = [
        (w.reads[0], next(k.__name__ for k in type(w.metric).__mro__))
        for w in found
    ]
    names = [
        (read, "MeanMetricWrapper" if "Sparse" in name else name)
        for read, name in kinds
    ]
    assert names == expected


# ---- the total loss -------------------------------------------------------


def outputs_of(rng, rows=12):
    """Outputs of nothing in particular, distances to class means."""
    logits = np.float32(4 * rng.standard_normal((rows, 3)))
    centers = 10 * np.eye(3) + rng.standard_normal((3, 3))
    d = np.float32(oracle.distances(logits, centers))
    features = np.float32(2 * rng.standard_normal((rows, 4)))
    outputs = {"logits": logits, "distances": d, "features": features}
    return {k: ops.convert_to_tensor(v) for k, v in outputs.items()}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"]
)
def test_the_sum_of_weighted_losses(rng, reduction, weighted):
    outputs = outputs_of(rng)
    labels = rng.integers(0, 3, 12)
    weights = np.float32(rng.random(12)) if weighted else None
    found = compilation.terms(
        [
            losses.CACLoss(0.3, reduction=reduction),
            {"logits": logits_loss(reduction=reduction)},
            losses.CrossEntropyLoss(reduction=reduction),
        ],
        [1.0, 0.5, 3.0],
    )
    w = np.ones(12) if weights is None else weights
    tuplet = weighted_mean(
        oracle.cac_loss(labels, np.float64(outputs["distances"]), 0.3),
        w,
        reduction,
    )
    entropy = weighted_mean(
        cross_entropy_oracle(labels, outputs["logits"]), w, reduction
    )
    expected = tuplet + 3.5 * entropy
    for y in (labels, labels[:, None], np.float32(labels)):
        for training in (True, False):
            total = compilation.total_loss(found, y, outputs, weights, training)
            assert float(total) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"]
)
def test_negatives_reach_only_the_loss_that_takes_them(
    rng, reduction, weighted
):
    outputs = outputs_of(rng)
    labels = rng.integers(-1, 3, 12)
    labels[:4] = [-1, 0, 1, 2]
    known = labels >= 0
    weights = np.float32(rng.random(12)) if weighted else None
    w = np.ones(12) if weights is None else weights
    found = compilation.terms(
        [
            losses.CACLoss(0.3, reduction=reduction),
            Objectosphere(reduction=reduction),
            {"logits": logits_loss(reduction=reduction)},
        ],
        [2.0, 0.5, 1.0],
    )
    arrays = {k: np.float64(v) for k, v in outputs.items()}
    of_known = 2.0 * weighted_mean(
        oracle.cac_loss(labels[known], arrays["distances"][known], 0.3),
        w[known],
        reduction,
    ) + weighted_mean(
        cross_entropy_oracle(labels[known], arrays["logits"][known]),
        w[known],
        reduction,
    )
    rows = objectosphere_oracle(labels, arrays["logits"], arrays["features"])
    of_all = 0.5 * weighted_mean(rows, w, reduction)
    total = compilation.total_loss(found, labels, outputs, weights, True)
    assert float(total) == pytest.approx(of_known + of_all, rel=1e-5)
    # Validation data hold unknown inputs, which are no negatives.
    of_known += 0.5 * weighted_mean(rows[known], w[known], reduction)
    total = compilation.total_loss(found, labels, outputs, weights, False)
    assert float(total) == pytest.approx(of_known, rel=1e-5)
    number = compilation.number_of_rows(labels)
    assert float(number) == known.sum()


def test_a_batch_without_known_rows(rng):
    outputs, labels = outputs_of(rng), np.full(12, -1)
    found = compilation.terms([losses.CACLoss(), Objectosphere()])
    total = compilation.total_loss(found, labels, outputs, None, True)
    expected = objectosphere_oracle(
        labels, np.float64(outputs["logits"]), outputs["features"]
    ).mean()
    assert float(total) == pytest.approx(expected, rel=1e-5)
    total = compilation.total_loss(found, labels, outputs, None, False)
    assert float(total) == 0.0


def test_without_such_a_loss_a_negative_in_training_is_nan(rng):
    """What `fit` refuses does not become a plausible number elsewhere."""
    labels = np.array([-1] + [0] * 11)
    total = compilation.total_loss(
        compilation.terms(losses.CACLoss()), labels, outputs_of(rng), None, True
    )
    assert np.isnan(float(total))


# ---- in fit ---------------------------------------------------------------


def compiled(loss, metrics=None, **options):
    """A small classifier with a hidden layer, from the same start."""
    keras.utils.set_random_seed(0)
    backbone = keras.Sequential(
        [
            keras.Input([5]),
            keras.layers.Dense(
                4, "tanh", kernel_regularizer=keras.regularizers.L2(0.01)
            ),
            keras.layers.Dense(3),
        ]
    )
    model = cac_tf.OpenSetClassifier(backbone, ["a", "b", "c"])
    model.compile(
        keras.optimizers.SGD(0.1), loss=loss, metrics=metrics, **options
    )
    model.build((None, 5))
    return model


def weights_after(model):
    return [np.asarray(w) for w in model.trainable_weights]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_stock_cross_entropy_trains_as_ours_does(rng, weighted):
    x, y = blobs(rng)
    options = {}
    if weighted:
        options["sample_weight"] = np.float32(rng.random(len(x)))
    found = []
    for loss in (
        losses.CrossEntropyLoss(),
        {"logits": logits_loss()},
        [{"logits": [logits_loss()]}],
    ):
        model = compiled(loss, {"logits": ["accuracy"]})
        history = model.fit(
            x, y, epochs=4, verbose=0, validation_data=(x, y), **options
        )
        found.append((history.history, weights_after(model)))
    assert found[0][0]["loss"][-1] < 0.7 * found[0][0]["loss"][0]
    for history, weights in found[1:]:
        assert set(history) == set(found[0][0])
        for name, values in history.items():
            np.testing.assert_allclose(values, found[0][0][name], rtol=1e-5)
        for one, other in zip(weights, found[0][1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_function_of_an_output(rng):
    """One value a row: weighted, reduced and counted as other losses."""
    x, y = blobs(rng, rows=60)

    def length(y_true, y_pred):
        return ops.sum(ops.square(y_pred), axis=-1)

    model = compiled([losses.CrossEntropyLoss(), {"features": length}], None)
    weights = np.float32(rng.random(60))
    outputs = model.predict(x, verbose=0)
    rows = cross_entropy_oracle(y, outputs["logits"]) + (
        np.float64(outputs["features"]) ** 2
    ).sum(axis=1)
    penalty = 0.01 * (np.float64(model.backbone.layers[0].kernel) ** 2).sum()
    loss = model.evaluate(x, y, sample_weight=weights, verbose=0, batch_size=60)
    assert loss == pytest.approx((rows * weights).mean() + penalty, rel=1e-5)
    history = model.fit(x, y, epochs=1, verbose=0, batch_size=60).history
    assert history["loss"][0] == pytest.approx(rows.mean() + penalty, rel=1e-5)


def mixed_data(rng, rows=60):
    """Known inputs with negatives among them."""
    x, y = blobs(rng, rows=rows)
    y = y.copy()
    y[::4] = -1
    x[::4] = np.float32(rng.normal(-1, 1, (len(x[::4]), 5)))
    return x, y


def test_negatives_in_fit(rng):
    """The first step's loss is the equation's, and negatives get short."""
    x, y = mixed_data(rng)
    known = y >= 0
    model = compiled([losses.CACLoss(0.2), Objectosphere()], ["accuracy"])
    assert model.takes_negatives
    outputs = {
        name: np.float64(value)
        for name, value in model.predict(x, verbose=0).items()
    }
    d = oracle.distances(outputs["logits"], 10 * np.eye(3))
    penalty = 0.01 * (np.float64(model.backbone.layers[0].kernel) ** 2).sum()
    expected = (
        oracle.cac_loss(y[known], d[known], 0.2).mean()
        + objectosphere_oracle(y, outputs["logits"], outputs["features"]).mean()
        + penalty
    )
    history = model.fit(x, y, batch_size=60, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    accuracy = (d.argmin(axis=1) == y)[known].mean()
    assert history["accuracy"][0] == pytest.approx(accuracy, rel=1e-5)

    def length_of_negatives_to_known():
        features = model.predict(x, verbose=0)["features"]
        length = np.linalg.norm(features, axis=1)
        return length[~known].mean() / length[known].mean()

    before = length_of_negatives_to_known()
    model.fit(x, y, epochs=20, verbose=0, validation_data=(x, y))
    assert length_of_negatives_to_known() < 0.8 * before
    # All of them, in a data set and step by step.
    batches = [(x[:20], y[:20]), (x[20:], y[20:])]
    model.fit(iter(batches), steps_per_epoch=2, verbose=0)
    assert np.isfinite(model.train_on_batch(x, y)[0])


@pytest.mark.parametrize("is_stock", [False, True])
def test_cac_beside_a_loss_that_takes_negatives(rng, is_stock):
    """Its own part of the loss is that of the known rows."""
    x, y = mixed_data(rng)
    known = y >= 0
    model = compiled([losses.CACLoss(), losses.EntropicOpenSetLoss()])
    z = np.float64(model.predict(x, verbose=0)["logits"])
    d = oracle.distances(z, 10 * np.eye(3))
    targets = np.where(known[:, None], np.eye(3)[y], 1 / 3)
    expected = (
        oracle.cac_loss(y[known], d[known], 0.1).mean()
        - (targets * special.log_softmax(z, axis=1)).sum(axis=1).mean()
        + 0.01 * (np.float64(model.backbone.layers[0].kernel) ** 2).sum()
    )
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        history = model.fit(x, y, batch_size=60, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_a_loss_that_divides_by_lengths(rng):
    """Rows that do not count repeat one that does."""
    x, y = mixed_data(rng)
    model = compiled(losses.CACLoss())

    def mean_of_unit_vectors(y_true, y_pred):
        length = ops.norm(y_pred, axis=-1, keepdims=True)
        return ops.mean(y_pred / length, axis=-1)

    model.compile(
        "sgd",
        [{"logits": mean_of_unit_vectors}, losses.EntropicOpenSetLoss()],
        loss_weights=[1.0, 0.0],
    )
    z = model.predict(x[y >= 0], verbose=0)["logits"]
    penalty = 0.01 * (np.float64(model.backbone.layers[0].kernel) ** 2).sum()
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    expected = unit.mean() + penalty
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(expected, rel=1e-4)
    assert np.isfinite(model.fit(x, y, verbose=0).history["loss"][0])


class Length(losses.Loss):
    """Has no derivative at 0, and is not finite below -50."""

    READS = ("features",)

    def call(self, y_true, y_pred):
        length = ops.sqrt(ops.sum(ops.square(y_pred), axis=-1))
        return length + ops.log(50.0 + ops.min(y_pred, axis=-1))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("value", [0.0, -1e6])
def test_a_loss_that_is_not_finite_at_negatives(rng, value, jit_compile):
    """Neither the loss of the known rows nor its gradient sees them."""
    x = np.float32(rng.random((40, 4)))
    y = np.arange(40) % 3
    x[::4], y[::4] = value, -1
    known = y >= 0
    inputs = keras.Input((4,))
    features = keras.layers.Dense(8, use_bias=False)(inputs)
    logits = keras.layers.Dense(3, use_bias=False)(features)
    network = keras.Model(inputs, {"features": features, "logits": logits})
    network.layers[1].set_weights([np.float32(rng.random((4, 8)))])
    model = small_classifier(backbone=network)
    model.compile(
        keras.optimizers.SGD(0.1),
        [Length(), losses.EntropicOpenSetLoss()],
        loss_weights=[1.0, 0.0],
        jit_compile=jit_compile,
    )
    before = np.float64(network.layers[1].kernel)
    z = np.float64(x)[known] @ before
    length = np.sqrt((z**2).sum(axis=1))
    expected = (length + np.log(50 + z.min(axis=1))).mean()
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(expected, rel=1e-5)
    history = model.fit(x, y, batch_size=40, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    is_least = np.eye(8)[z.argmin(axis=1)]
    of_z = z / length[:, None] + is_least / (50 + z.min(axis=1))[:, None]
    gradient = np.float64(x)[known].T @ of_z / known.sum()
    np.testing.assert_allclose(
        np.asarray(network.layers[1].kernel),
        before - 0.1 * gradient,
        rtol=1e-4,
        atol=1e-6,
    )
    # And where no row of a batch counts.
    unknown = model.evaluate(x[~known], y[~known], verbose=0, return_dict=True)
    assert unknown["loss"] == 0.0
    assert model.train_on_batch(x[~known], y[~known]) == pytest.approx(0.0)


def test_a_metric_of_batches_of_unknown_rows(rng):
    """It may divide by the spread of a row's values."""

    def greatest(y_true, y_pred):
        centered = y_pred - ops.mean(y_pred, axis=-1, keepdims=True)
        return ops.max(centered, axis=-1) / ops.std(y_pred, axis=-1)

    model = small_classifier(width=4)
    model.compile("sgd", losses.CACLoss(), metrics={"logits": greatest})
    x = np.float32(rng.normal(size=(40, 4)))
    y = np.r_[np.arange(20) % 3, [-1] * 20]
    z = model.predict(x[:20], verbose=0)["logits"]
    expected = (z.max(axis=1) - z.mean(axis=1)) / z.std(axis=1)
    found = model.evaluate(x, y, batch_size=10, verbose=0, return_dict=True)
    assert found["greatest"] == pytest.approx(expected.mean(), rel=1e-5)


def test_negatives_change_no_other_loss(rng):
    """Trained with a weight of 0 for the loss that takes them."""
    x, y = mixed_data(rng)
    known = y >= 0
    one = compiled(losses.CACLoss())
    one.fit(x[known], y[known], batch_size=60, epochs=3, verbose=0)
    other = compiled([losses.CACLoss(), Objectosphere()], loss_weights=[1, 0])
    other.fit(x, y, batch_size=60, epochs=3, verbose=0)
    for a, b in zip(weights_after(one), weights_after(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_negatives_that_no_loss_takes(rng):
    x, y = mixed_data(rng)
    model = compiled(losses.CACLoss())
    assert not model.takes_negatives
    match = "Label -1 at .*position 0 is out of range"
    with pytest.raises(ValueError, match=match):
        model.fit(x, y, verbose=0)
    with pytest.raises(ValueError, match=match):
        model.train_on_batch(x, y)
    with pytest.raises(ValueError, match=match):
        model.fit(iter([(x, y)]), verbose=0)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(30)
        with pytest.raises(ValueError, match=match):
            model.fit(data, verbose=0)
    # Other labels below 0 are none, whatever the losses.
    model = compiled([losses.CACLoss(), Objectosphere()])
    with pytest.raises(ValueError, match="Label -2"):
        model.fit(x, np.where(y == -1, -2, y), verbose=0)
    # A class without an example, though there are negatives.
    with pytest.raises(ValueError, match="no training example: c"):
        model.fit(x, np.where(y == 2, -1, y), verbose=0)


def test_saved_with_what_was_compiled(rng, tmp_path):
    x, y = mixed_data(rng)
    model = compiled(
        [losses.CACLoss(0.2), Objectosphere(), {"logits": logits_loss()}],
        ["accuracy", metrics.OpenSetAUROC("max_logit")],
        loss_weights=[1.0, 0.5, 0.25],
    )
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = cac_tf.load_model(tmp_path / "model.keras")
    assert again.takes_negatives
    np.testing.assert_allclose(
        again.evaluate(x, y, verbose=0),
        model.evaluate(x, y, verbose=0),
        rtol=1e-5,
    )
    again.fit(x, y, epochs=1, verbose=0)
