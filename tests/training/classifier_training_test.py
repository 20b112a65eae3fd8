# SPDX-License-Identifier: Apache-2.0
"""What plain Keras does not do: several losses, negatives, uneven replicas."""

import contextlib
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from cac_tf import losses
from cac_tf import metrics
from cac_tf import ops as fused_ops
from cac_tf.layers.precision import dtype_policy
from cac_tf.training import ClassifierTraining
from tests import oracle
from tests.conftest import ROOT
from tests.conftest import blobs
from tests.execution import BACKEND

ON_TENSORFLOW = BACKEND == "tensorflow"
needs_fused = pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)
LENGTH = 1.5
REDUCTIONS = ("sum_over_batch_size", "sum", "mean_with_sample_weight")
each_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def stock_cross_entropy(**options):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, **options
    )


def cross_entropy_oracle(labels, logits):
    logits = np.float64(logits)
    return (
        special.logsumexp(logits, axis=1) - logits[range(len(labels)), labels]
    )


def objectosphere(weight=1.0, **options):
    return losses.ObjectosphereLoss(LENGTH, weight, **options)


def objectosphere_oracle(labels, logits, features, weight=1.0):
    """One example at a time."""
    rows = []
    for y, z, f in zip(labels, logits, np.float64(features), strict=True):
        length = np.linalg.norm(f)
        if y == -1:
            of_length = length**2
            rows.append(special.logsumexp(z) - np.mean(z) + weight * of_length)
        else:
            short = max(0.0, LENGTH - length) ** 2
            rows.append(special.logsumexp(z) - z[y] + weight * short)
    return np.array(rows)


def cac_oracle(labels, logits, anchor_weight=0.1):
    d = oracle.distances(logits, 10 * np.eye(logits.shape[1]))
    return oracle.cac_loss(labels, d, anchor_weight)


def weighted_mean(rows, weights, reduction="sum_over_batch_size"):
    """Keras' reductions."""
    total = (rows * weights).sum()
    return total / {
        "sum_over_batch_size": len(rows),
        "sum": 1.0,
        "mean_with_sample_weight": weights.sum(),
    }.get(reduction)


def network(regularizer=0.01):
    """Features of a width of their own, and logits."""
    inputs = keras.Input([5])
    penalty = keras.regularizers.L2(regularizer) if regularizer else None
    features = keras.layers.Dense(4, "tanh", kernel_regularizer=penalty)(inputs)
    logits = keras.layers.Dense(3)(features)
    return keras.Model(inputs, {"features": features, "logits": logits})


def penalty_of(training):
    kernel = np.float64(training.classifier.layers[1].kernel)
    return 0.01 * (kernel**2).sum()


def compiled(loss, watched=(), classifier=None, rate=0.1, **options):
    """A training from the same start."""
    keras.utils.set_random_seed(0)
    training = ClassifierTraining(classifier or network())
    training.compile(keras.optimizers.SGD(rate), loss, watched, **options)
    return training


def outputs_of(training, x):
    found = training.predict(x, verbose=0)
    return {name: np.float64(value) for name, value in found.items()}


def weights_after(training):
    return [np.asarray(w) for w in training.trainable_weights]


# ---- the total loss of a batch --------------------------------------------


def any_outputs(rng, rows=12):
    """Outputs of nothing in particular."""
    return {
        "logits": np.float32(4 * rng.standard_normal((rows, 3))),
        "features": np.float32(2 * rng.standard_normal((rows, 4))),
    }


def total_loss(loss, labels, outputs, weights=None, training=True):
    tensors = {k: ops.convert_to_tensor(v) for k, v in outputs.items()}
    owner = compiled(loss, classifier=network(regularizer=None))
    found = owner.compute_loss(None, labels, tensors, weights, training)
    return float(found), float(owner.metrics[0].result())


@weighted_or_not
@each_reduction
def test_the_sum_of_several_losses_of_one_label(rng, reduction, weighted):
    outputs, labels = any_outputs(rng), rng.integers(0, 3, 12)
    weights = np.float32(rng.random(12)) if weighted else None
    w = np.ones(12) if weights is None else weights
    logits = np.float64(outputs["logits"])
    expected = weighted_mean(
        cac_oracle(labels, logits, 0.3), w, reduction
    ) + 2 * weighted_mean(cross_entropy_oracle(labels, logits), w, reduction)
    loss = [
        losses.CACLoss(anchor_weight=0.3, reduction=reduction),
        {"logits": stock_cross_entropy(reduction=reduction)},
        losses.CrossEntropyLoss(reduction=reduction),
    ]
    for y in (labels, labels[:, None], np.float32(labels)):
        for training in (True, False):
            found = total_loss(loss, y, outputs, weights, training)
            assert found == pytest.approx((expected, expected), rel=1e-5)


@weighted_or_not
@each_reduction
def test_negatives_reach_only_the_loss_that_takes_them(
    rng, reduction, weighted
):
    outputs, labels = any_outputs(rng), rng.integers(-1, 3, 12)
    labels[:4] = [-1, 0, 1, 2]
    known = labels >= 0
    weights = np.float32(rng.random(12)) if weighted else None
    w = np.ones(12) if weights is None else weights
    loss = [
        losses.CACLoss(anchor_weight=0.3, reduction=reduction),
        objectosphere(0.5, reduction=reduction),
        {"logits": stock_cross_entropy(reduction=reduction)},
    ]
    logits, features = map(np.float64, (outputs["logits"], outputs["features"]))
    of_known = weighted_mean(
        cac_oracle(labels[known], logits[known], 0.3)
        + cross_entropy_oracle(labels[known], logits[known]),
        w[known],
        reduction,
    )
    rows = objectosphere_oracle(labels, logits, features, 0.5)
    of_all = weighted_mean(rows, w, reduction)
    found, _ = total_loss(loss, labels, outputs, weights)
    assert found == pytest.approx(of_known + of_all, rel=1e-5)
    # Validation data hold unknown inputs, which are no negatives.
    of_known += weighted_mean(rows[known], w[known], reduction)
    found, _ = total_loss(loss, labels, outputs, weights, training=False)
    assert found == pytest.approx(of_known, rel=1e-5)


def test_a_batch_without_known_rows(rng):
    outputs, labels = any_outputs(rng), np.full(12, -1)
    loss = [losses.CACLoss(), objectosphere()]
    expected = objectosphere_oracle(
        labels, np.float64(outputs["logits"]), outputs["features"]
    ).mean()
    found = total_loss(loss, labels, outputs)
    assert found == pytest.approx((expected, expected), rel=1e-5)
    assert total_loss(loss, labels, outputs, training=False) == (0.0, 0.0)


def test_without_such_a_loss_a_negative_in_training_is_nan(rng):
    """What the methods refuse does not become a plausible number."""
    labels = np.array([-1] + [0] * 11)
    found, _ = total_loss(losses.CACLoss(), labels, any_outputs(rng))
    assert np.isnan(found)


# ---- in fit ---------------------------------------------------------------


def test_one_loss_trains_as_plain_keras_does(rng):
    """Loss, accuracy and weights; the penalty of weights counts once."""
    x, y = blobs(rng, rows=63)
    training = compiled(losses.CACLoss(), [metrics.KnownAccuracy()])
    options = {"epochs": 3, "batch_size": 20, "shuffle": False, "verbose": 0}
    history = training.fit(x, y, validation_data=(x, y), **options).history
    keras.utils.set_random_seed(0)
    classifier = network()
    plain = keras.Model(classifier.input, classifier.output["logits"])
    plain.compile(
        keras.optimizers.SGD(0.1), losses.CACLoss(), metrics=["accuracy"]
    )
    expected = plain.fit(x, y, validation_data=(x, y), **options).history
    assert set(history) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    for one, two in zip(
        weights_after(training), weights_after(plain), strict=True
    ):
        np.testing.assert_allclose(one, two, atol=1e-6)


def mixed_data(rng, rows=60):
    """Known inputs with negatives among them."""
    x, y = blobs(rng, rows=rows)
    y = y.copy()
    y[::4] = -1
    x[::4] = np.float32(rng.normal(-1, 1, (len(x[::4]), 5)))
    return x, y


@pytest.mark.parametrize("is_stock", [False, True])
def test_negatives_in_fit(rng, is_stock):
    """The first step's loss is the equation's, and negatives get short."""
    x, y = mixed_data(rng)
    known = y >= 0
    training = compiled(
        [losses.CACLoss(anchor_weight=0.2), objectosphere()],
        [metrics.KnownAccuracy()],
    )
    assert training.takes_negatives
    out = outputs_of(training, x)
    expected = (
        cac_oracle(y[known], out["logits"][known], 0.2).mean()
        + objectosphere_oracle(y, out["logits"], out["features"]).mean()
        + penalty_of(training)
    )
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        history = training.fit(x, y, batch_size=60, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    accuracy = (out["logits"].argmax(axis=1) == y)[known].mean()
    assert history["accuracy"][0] == pytest.approx(accuracy, rel=1e-5)

    def length_of_negatives_to_known():
        features = outputs_of(training, x)["features"]
        length = np.linalg.norm(features, axis=1)
        return length[~known].mean() / length[known].mean()

    before = length_of_negatives_to_known()
    training.fit(x, y, epochs=20, verbose=0, validation_data=(x, y))
    assert length_of_negatives_to_known() < 0.8 * before


def test_negatives_change_no_other_loss(rng):
    """Trained with a weight of 0 for the loss that takes them."""
    x, y = mixed_data(rng)
    known = y >= 0
    options = {"batch_size": 60, "epochs": 3, "verbose": 0}
    one = compiled(losses.CACLoss())
    one.fit(x[known], y[known], **options)
    other = compiled([losses.CACLoss(), Nothing()])
    other.fit(x, y, **options)
    for a, b in zip(weights_after(one), weights_after(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


class Length(losses.Loss):
    """Has no derivative at 0, and is not finite below -50."""

    READS = ("features",)

    def call(self, y_true, y_pred):
        length = ops.sqrt(ops.sum(ops.square(y_pred), axis=-1))
        return length + ops.log(50.0 + ops.min(y_pred, axis=-1))


class Nothing(losses.Loss):
    """Of negatives too."""

    TAKES_NEGATIVES = True

    def call(self, y_true, y_pred):
        return ops.zeros_like(y_pred[:, 0])


@pytest.mark.parametrize(
    ("value", "jit_compile"), [(0.0, True), (-1e6, False), (-1e6, True)]
)
def test_a_loss_that_is_not_finite_at_negatives(rng, value, jit_compile):
    """Neither the loss of the known rows nor its gradient sees them."""
    x = np.float32(rng.random((40, 4)))
    y = np.arange(40) % 3
    x[::4], y[::4] = value, -1
    known = y >= 0
    inputs = keras.Input((4,))
    features = keras.layers.Dense(8, use_bias=False)(inputs)
    logits = keras.layers.Dense(3, use_bias=False)(features)
    classifier = keras.Model(inputs, {"features": features, "logits": logits})
    dense = classifier.layers[1]
    dense.set_weights([np.float32(rng.random((4, 8)))])
    training = compiled(
        [Length(), Nothing()],
        classifier=classifier,
        jit_compile=jit_compile,
    )
    before = np.float64(dense.kernel)
    z = np.float64(x)[known] @ before
    length = np.sqrt((z**2).sum(axis=1))
    expected = (length + np.log(50 + z.min(axis=1))).mean()
    result = training.evaluate(x, y, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(expected, rel=1e-5)
    history = training.fit(x, y, batch_size=40, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    is_least = np.eye(8)[z.argmin(axis=1)]
    of_z = z / length[:, None] + is_least / (50 + z.min(axis=1))[:, None]
    gradient = np.float64(x)[known].T @ of_z / known.sum()
    np.testing.assert_allclose(
        np.asarray(dense.kernel),
        before - 0.1 * gradient,
        rtol=1e-4,
        atol=1e-6,
    )
    # And where no row of a batch counts.
    unknown = training.evaluate(
        x[~known], y[~known], verbose=0, return_dict=True
    )
    assert unknown["loss"] == 0.0


def test_the_loss_of_batches_with_negatives_is_a_mean_over_all(rng):
    """Whatever batch the negatives are in."""
    x, y = blobs(rng, rows=64)
    y[:32] = -1
    found = []
    for size in (64, 32):
        training = compiled(losses.EntropicOpenSetLoss(), rate=0.0)
        history = training.fit(x, y, batch_size=size, shuffle=False, verbose=0)
        found += history.history["loss"]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_unknown_validation_rows_whose_outputs_overflow(rng):
    """They do not count, and the streamed AUROC takes them for unknown."""
    x, y = blobs(rng)
    watched = [metrics.KnownAccuracy(), metrics.OpenSetAUROC()]
    dense = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    training = compiled(losses.CACLoss(), watched, dense)
    rows = np.concatenate([x[:30], np.float32([[3e38, -3e38, 3e38, 1, 1]])])
    labels = np.append(y[:30], -1)
    expected = training.evaluate(x[:30], y[:30], verbose=0, return_dict=True)
    actual = training.evaluate(rows, labels, verbose=0, return_dict=True)
    logits = np.float64(dense.predict(x[:30], verbose=0))
    loss = cac_oracle(y[:30], logits).mean()
    for found in (expected, actual):
        assert found["loss"] == pytest.approx(loss, rel=1e-5)
        assert found["accuracy"] == pytest.approx(
            (logits.argmax(axis=1) == y[:30]).mean()
        )
    assert actual["auroc"] > 0.999


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_half_precision_network_in_a_float32_classifier(rng, policy):
    """Keras looks only at the outermost model; here the loss is scaled."""
    x, y = blobs(rng)
    with dtype_policy(policy):
        inner = keras.Sequential([keras.Input([5]), keras.layers.Dense(8)])
    classifier = keras.Sequential(
        [keras.Input([5]), inner, keras.layers.Dense(3)]
    )
    training = compiled(
        losses.CACLoss(), [metrics.KnownAccuracy()], classifier, rate=0.05
    )
    is_scaled = isinstance(
        training.optimizer, keras.optimizers.LossScaleOptimizer
    )
    assert is_scaled == (policy == "mixed_float16")
    logits = np.float64(classifier.predict(x, verbose=0))
    history = training.fit(x, y, batch_size=240, epochs=10, verbose=0).history
    first = cac_oracle(y, logits).mean()
    assert history["loss"][0] == pytest.approx(first, rel=1e-2)
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert training.predict(x, verbose=0)["logits"].dtype == np.float32


def test_divergence_is_named(rng):
    x, y = blobs(rng)
    training = compiled(losses.CACLoss(), rate=1e30)
    with pytest.raises(
        FloatingPointError, match="diverged: try a lower learning"
    ):
        training.fit(x, y, epochs=20, verbose=0)


# ---- the fused operation --------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """One entry for each time the fused loss is traced or run."""
    entries = []
    binding = fused_ops.binding()
    original = binding.anchored_cac_loss

    def counted(labels, logits, magnitude, anchor_weight, validate):
        entries.append((magnitude, anchor_weight, validate))
        return original(labels, logits, magnitude, anchor_weight, validate)

    monkeypatch.setattr(binding, "anchored_cac_loss", counted)
    return entries


def trained(x, y, loss=None, fit_options=None, **options):
    """History and weights after a few steps, from the same start."""
    training = compiled(
        loss or losses.CACLoss(magnitude=8, anchor_weight=0.2),
        [metrics.KnownAccuracy()],
        **options,
    )
    history = training.fit(
        x, y, epochs=3, verbose=0, validation_data=(x, y), **(fit_options or {})
    )
    return history.history, training.get_weights()


def assert_same_training(one, other):
    for name, values in one[0].items():
        np.testing.assert_allclose(values, other[0][name], rtol=1e-5)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, equal_nan=True)


@needs_fused
@pytest.mark.parametrize(
    "options",
    [
        {"jit_compile": False},
        {"jit_compile": True},
        {"run_eagerly": True},
        {"steps_per_execution": 3},
    ],
    ids=str,
)
def test_takes_the_fused_loss_and_trains_the_same(rng, calls, options):
    """Also as one of several losses."""
    x, y = blobs(rng)
    cac = losses.CACLoss(magnitude=8, anchor_weight=0.2)
    loss = [cac, {"logits": losses.CrossEntropyLoss()}]
    fused = trained(x, y, loss, **options)
    assert set(calls) == {(8.0, 0.2, False)}
    calls.clear()
    with fused_ops.stock_operations():
        stock = trained(x, y, loss, **options)
    assert calls == []
    assert_same_training(fused, stock)


@needs_fused
@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_reductions_and_sample_weights_of_the_fused_loss(rng, calls, reduction):
    x, y = blobs(rng)
    weights = {"sample_weight": np.float32(rng.random(len(x)) / 30)}
    loss = losses.CACLoss(reduction=reduction)
    fused = trained(x, y, loss, weights)
    assert calls
    with fused_ops.stock_operations():
        assert_same_training(fused, trained(x, y, loss, weights))


# ---- replicas -------------------------------------------------------------

REPLICAS = """
import json
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

from cac_tf import losses, metrics, ops
from cac_tf.layers.batch_normalization import BatchNormalization
from cac_tf.training import ClassifierTraining
from tests.conftest import blobs

x, y = blobs(np.random.default_rng(0))
binding, calls = ops.binding(), []
if binding is not None:
    original = binding.anchored_cac_loss
    binding.anchored_cac_loss = lambda *a: (calls.append(1), original(*a))[1]

def trained(strategy, synchronized=None, is_stock=False):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        middle = [] if synchronized is None else [
            keras.layers.Reshape([1, 1, 4]),
            BatchNormalization(synchronized),
            keras.layers.Flatten(),
        ]
        penalty = keras.regularizers.L2(0.01)
        training = ClassifierTraining(keras.Sequential([
            keras.Input([5]),
            keras.layers.Dense(4, kernel_regularizer=penalty),
            *middle,
            keras.layers.Dense(3),
        ]))
        training.compile(
            keras.optimizers.SGD(0.1, momentum=0.9),
            [losses.CACLoss(), {"logits": losses.CrossEntropyLoss()}],
            [metrics.KnownAccuracy()],
        )
    ops.set_enabled(not is_stock)
    # 13 rows and 12; then one for the first replica and none for the second.
    history = training.fit(
        x[:26], y[:26], batch_size=25, epochs=3, shuffle=False, verbose=0,
        validation_data=(x[30:31], y[30:31]),
    ).history
    return training, history, [w.tolist() for w in training.get_weights()]

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
single = tf.distribute.get_strategy()
found = {}
calls.clear()
found["two"] = trained(mirrored)[1:]
found["fused_calls"] = len(calls)
calls.clear()
found["two_stock"] = trained(mirrored, is_stock=True)[1:]
found["stock_calls"] = len(calls)
found["one"] = trained(single)[1:]
found["evaluated"] = []
for synchronized in (True, False):
    two, history, _ = trained(mirrored, synchronized)
    one, *_ = trained(single, synchronized)
    one.set_weights(two.get_weights())
    found["evaluated"].append([
        history,
        [[model.evaluate(x[:n], y[:n], verbose=0) for n in (1, 26)]
         for model in (two, one)],
    ])
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="replicas of tf.distribute")
def test_two_replicas_give_the_numbers_of_one():
    """Also with more rows than the other, and with none."""
    result = subprocess.run(
        [sys.executable, "-c", REPLICAS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    if fused_ops.binding() is not None:
        assert (found["fused_calls"] > 0, found["stock_calls"]) == (True, 0)
    for other in ("two", "two_stock"):
        (history, weights), (expected, of_one) = found[other], found["one"]
        assert set(history) == set(expected)
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-5)
        for one, two in zip(weights, of_one, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
    for history, (two, one) in found["evaluated"]:
        assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
        assert np.isfinite(list(history.values())).all()
        np.testing.assert_allclose(two, one, rtol=1e-5)
