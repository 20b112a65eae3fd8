# SPDX-License-Identifier: Apache-2.0
"""The CAC loss in Keras models of every kind, against steps of the equations.

Each model is linear, so the equations say what a step of SGD makes of it.
"""

import contextlib

import keras
import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.layers.precision import dtype_policy
from cac_tf.losses import CACLoss
from tests import execution
from tests import oracle

RATE, MAGNITUDE, ANCHOR_WEIGHT = 0.1, 5.0, 0.3
ANCHORS = MAGNITUDE * np.eye(3)
X = np.float32(np.random.default_rng(1).standard_normal((8, 4)))
Y = np.array([0, 2, 1, 1, 0, 2, 2, 0])
START = [
    np.float32(np.random.default_rng(2).standard_normal((4, 3))),
    np.float32([0.1, -0.2, 0.3]),
]
HALVES = [slice(0, 4), slice(4, 8)]
ON_TENSORFLOW = execution.BACKEND == "tensorflow"


def loss_and_gradient(weights, rows=slice(None), row_weights=None):
    """Of the mean loss of `x W + b` by W and b, from the equations."""
    x, y = np.float64(X[rows]), Y[rows]
    w = (np.ones(8) if row_weights is None else row_weights)[rows] / len(y)
    z = x @ weights[0] + weights[1]
    by_z = oracle.cac_gradient(y, z, ANCHORS, ANCHOR_WEIGHT) * w[:, None]
    losses = oracle.cac_loss(y, oracle.distances(z, ANCHORS), ANCHOR_WEIGHT)
    return losses @ w, [x.T @ by_z, by_z.sum(axis=0)]


def epoch(batches, row_weights=None):
    """The mean loss of an epoch of SGD, and the weights after it."""
    weights, losses = [np.float64(w) for w in START], []
    for rows in batches:
        loss, gradients = loss_and_gradient(weights, rows, row_weights)
        pairs = zip(weights, gradients, strict=True)
        weights = [w - RATE * g for w, g in pairs]
        losses.append(loss)
    return np.mean(losses), weights


def check(model, loss, expected, rtol=1e-5):
    """That loss and weights are those expected."""
    assert float(loss) == pytest.approx(expected[0], rel=rtol)
    for actual, wanted in zip(model.get_weights(), expected[1], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=rtol)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, inputs):
        return self.dense(inputs)


def linear(kind="sequential"):
    """A fresh model with the weights of START."""
    if kind == "subclassed":
        model = Subclassed()
        model(X)
    elif kind == "sequential":
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    else:
        inputs = keras.Input([4])
        logits = keras.layers.Dense(3)(inputs)
        several = {"logits": logits, "features": 2.0 * inputs}
        outputs = several if kind == "dict" else logits
        model = keras.Model(inputs, outputs)
    model.set_weights(START)
    return model


def cac_loss(**options):
    return CACLoss(MAGNITUDE, ANCHOR_WEIGHT, **options)


def compiled(model, loss=None, **options):
    optimizer = options.pop("optimizer", None) or keras.optimizers.SGD(RATE)
    model.compile(optimizer, loss or cac_loss(), **options)
    return model


def fitted(model, y=Y, **options):
    """The loss that `fit` says, of two batches in order."""
    history = model.fit(
        X, y, batch_size=4, shuffle=False, verbose=0, **options
    ).history
    return history["loss"][0]


@pytest.mark.parametrize("is_stock", [False, True])
@pytest.mark.parametrize(
    "kind", ["sequential", "functional", "subclassed", "dict"]
)
def test_fit_evaluate_and_accuracy(kind, is_stock):
    """With fused operations where they are built, and without."""
    model, y, loss, metrics = linear(kind), Y, cac_loss(), ["accuracy"]
    if kind == "dict":
        loss, metrics = {"logits": loss}, {"logits": metrics}
        # Keras' metrics by name need labels of every output.
        y = dict.fromkeys(["logits", "features"], Y)
    with fused_ops.stock_operations() if is_stock else contextlib.nullcontext():
        compiled(model, loss, metrics=metrics)
        check(model, fitted(model, y), epoch(HALVES))
        found = model.evaluate(X, y, verbose=0, return_dict=True)
    weights = model.get_weights()
    z = X @ weights[0] + weights[1]
    assert found["loss"] == pytest.approx(loss_and_gradient(weights)[0])
    nearest = oracle.distances(z, ANCHORS).argmin(axis=1)
    (accuracy,) = (found[name] for name in found if "accuracy" in name)
    assert accuracy == pytest.approx(np.mean(nearest == Y))


@pytest.mark.parametrize(
    "options",
    [
        {"run_eagerly": True},
        {"jit_compile": False},
        {"jit_compile": True, "steps_per_execution": 2},
    ],
    ids=str,
)
def test_ways_to_run_it(options):
    model = compiled(linear(), **options)
    check(model, fitted(model), epoch(HALVES))


def test_gradient_accumulation():
    """One step, with the mean of the gradients of two batches."""
    model = compiled(
        linear(),
        optimizer=keras.optimizers.SGD(RATE, gradient_accumulation_steps=2),
    )
    check(model, fitted(model), epoch([slice(0, 8)]))


def test_one_batch():
    """Without metrics, labels of one output are enough."""
    for model, y, loss in (
        (linear(), Y, cac_loss()),
        (linear("dict"), {"logits": Y}, {"logits": cac_loss()}),
    ):
        compiled(model, loss)
        check(model, model.train_on_batch(X, y), epoch([slice(0, 8)]))
        assert model.test_on_batch(X, y) == pytest.approx(
            loss_and_gradient(model.get_weights())[0]
        )


def test_a_loop_of_ones_own():
    """A gradient tape, or JAX' stateless calls."""
    model, loss, losses = linear(), cac_loss(), []
    optimizer = keras.optimizers.SGD(RATE)
    optimizer.build(model.trainable_variables)
    if ON_TENSORFLOW:
        import tensorflow as tf

        for rows in HALVES:
            with tf.GradientTape() as tape:
                value = loss(Y[rows], model(X[rows], training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply(gradients)
            losses.append(float(value))
    else:
        import jax

        @jax.jit
        def step(trained, state, x, y):
            def value(trained):
                return loss(y, model.stateless_call(trained, [], x)[0])

            value, gradients = jax.value_and_grad(value)(trained)
            return value, *optimizer.stateless_apply(state, gradients, trained)

        trained = [v.value for v in model.trainable_variables]
        state = [v.value for v in optimizer.variables]
        for rows in HALVES:
            value, trained, state = step(trained, state, X[rows], Y[rows])
            losses.append(float(value))
        model.set_weights(trained)
    check(model, np.mean(losses), epoch(HALVES))


@pytest.mark.parametrize("by_class", [False, True])
def test_weights_of_samples_and_classes(by_class):
    if by_class:
        options = {"class_weight": {0: 0.5, 1: 3.0, 2: 1.0}}
        rows = np.array([0.5, 3.0, 1.0])[Y]
    else:
        rows = np.linspace(0.0, 2.0, 8)
        options = {"sample_weight": np.float32(rows)}
    model = compiled(linear())
    loss = fitted(model, **options)
    _, weights = epoch(HALVES, rows)
    # (The loss that Keras shows of weighted batches differs by version.)
    assert np.isfinite(loss)
    for actual, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_rows_of_an_ignored_class():
    """A step with them is the step without them."""
    model = compiled(linear(), cac_loss(ignore_class=-1))
    labels = np.where(np.arange(8) % 4 == 1, -1, Y)
    loss = fitted(model, labels)
    kept = [np.array([0, 2, 3]), np.array([4, 6, 7])]
    check(model, loss, epoch(kept))


@pytest.mark.parametrize(
    ("policy", "rtol"), [("mixed_float16", 4e-3), ("mixed_bfloat16", 3e-2)]
)
def test_half_precision(policy, rtol):
    """A scale that is too large leaves the weights as they are."""
    with dtype_policy(policy):
        model = compiled(linear())
    is_scaled = policy == "mixed_float16"
    assert is_scaled == isinstance(
        model.optimizer, keras.optimizers.LossScaleOptimizer
    )
    if is_scaled:
        model.optimizer.build(model.trainable_variables)
        model.optimizer.dynamic_scale.assign(2.0**20)
        model.train_on_batch(X, Y)
        assert float(model.optimizer.dynamic_scale) == 2.0**19
        for actual, start in zip(model.get_weights(), START, strict=True):
            np.testing.assert_array_equal(actual, start)
        model.optimizer.dynamic_scale.assign(2.0**10)
    check(model, fitted(model), epoch(HALVES), rtol)


def test_low_rank_adaptation():
    """Only the two small matrices and the bias learn."""
    model = linear()
    dense = model.layers[0]
    dense.enable_lora(rank=2)
    a = np.float64(dense.lora_kernel_a)
    scale = dense.lora_alpha / 2
    compiled(model)
    loss = model.train_on_batch(X, Y)
    expected, (by_kernel, by_bias) = loss_and_gradient(START)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    for actual, wanted in (
        (dense._kernel, START[0]),
        (dense.lora_kernel_a, a),
        (dense.lora_kernel_b, -RATE * scale * a.T @ by_kernel),
        (dense.bias, START[1] - RATE * by_bias),
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


def test_the_gradient_that_these_tests_compare_with():
    """That of the equations is that of finite differences."""
    for index in range(2):

        def loss(value, index=index):
            weights = [*START]
            weights[index] = value
            return loss_and_gradient(weights)[0]

        expected = oracle.central_differences(loss, np.float64(START[index]))
        np.testing.assert_allclose(
            loss_and_gradient(START)[1][index], expected, atol=1e-8
        )
