# SPDX-License-Identifier: Apache-2.0
"""Training steps of an OpenSetClassifier, with and without the fused loss."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import cac_tf
from cac_tf import ops as fused_ops
from tests import execution
from tests import oracle
from tests.conftest import ROOT
from tests.conftest import blobs
from tests.conftest import small_classifier

ON_TENSORFLOW = execution.BACKEND == "tensorflow"

pytestmark = pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)


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


def trained(x, y, loss=None, fit_options=None, **compile_options):
    """History and weights after a few steps, from the same start."""
    keras.utils.set_random_seed(0)
    regularized = keras.layers.Dense(
        3, kernel_regularizer=keras.regularizers.L2(1e-2)
    )
    model = small_classifier(
        backbone=keras.Sequential([keras.Input([5]), regularized]),
        magnitude=8.0,
    )
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        loss or cac_tf.losses.CACLoss(anchor_weight=0.2),
        metrics=["accuracy"],
        **compile_options,
    )
    history = model.fit(
        x, y, epochs=3, verbose=0, validation_data=(x, y), **(fit_options or {})
    )
    return history.history, model.get_weights()


def assert_same_training(one, other):
    for name, values in one[0].items():
        np.testing.assert_allclose(values, other[0][name], rtol=1e-5)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, equal_nan=True)


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
    x, y = blobs(rng)
    fused = trained(x, y, **options)
    assert set(calls) == {(8.0, 0.2, False)}
    calls.clear()
    with fused_ops.stock_operations():
        stock = trained(x, y, **options)
    assert calls == []
    assert_same_training(fused, stock)


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_reductions_and_sample_weights(rng, calls, reduction):
    x, y = blobs(rng)
    weights = {"sample_weight": np.float32(rng.random(len(x)) / 30)}

    def run():
        loss = cac_tf.losses.CACLoss(reduction=reduction)
        return trained(x, y, loss, weights)

    fused = run()
    assert calls
    with fused_ops.stock_operations():
        assert_same_training(fused, run())


def test_other_losses_and_weighted_ones_take_their_own_way(rng, calls):
    class Doubled(cac_tf.losses.CACLoss):
        def call(self, y_true, y_pred):
            return 2.0 * super().call(y_true, y_pred)

    x, y = blobs(rng)
    single, _ = trained(x, y, loss_weights=2.0)
    double, _ = trained(x, y, Doubled(anchor_weight=0.2))
    trained(x, y, cac_tf.losses.CACLoss(0.2, ignore_class=-1))
    trained(x, y, cac_tf.losses.CrossEntropyLoss())
    assert set(calls) == {(8.0, 0.2, False)}  # Of the first one alone.
    np.testing.assert_allclose(single["loss"], double["loss"], rtol=1e-5)


def test_the_fused_loss_is_one_of_several(rng, calls):
    """Weighted and added up as with stock operations."""
    x, y = blobs(rng)
    losses = [
        cac_tf.losses.CACLoss(anchor_weight=0.2),
        {"logits": cac_tf.losses.CrossEntropyLoss()},
    ]
    options = {"loss_weights": [0.5, 2.0]}
    fused = trained(x, y, losses, **options)
    assert set(calls) == {(8.0, 0.2, False)}
    calls.clear()
    with fused_ops.stock_operations():
        assert_same_training(fused, trained(x, y, losses, **options))
    assert calls == []


@pytest.mark.parametrize(
    "options",
    [{"learnt": True}, {"width": 5}],
    ids=["learnt", "wider"],
)
def test_heads_without_own_anchors_take_stock_operations(rng, calls, options):
    x, y = blobs(rng)
    head = cac_tf.layers.AnchoredDistance(3, **options)
    backbone = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(head.width)]
    )
    model = small_classifier(backbone=backbone, head=head)
    history = model.fit(x, y, epochs=2, verbose=0).history["loss"]
    assert calls == []
    assert history[1] < history[0]


def test_half_precision_logits(rng, calls):
    x, y = blobs(rng)
    backbone = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(3, dtype="mixed_bfloat16")]
    )
    with pytest.warns(UserWarning, match="half|bfloat16"):
        model = small_classifier(backbone=backbone)
    history = model.fit(x, y, epochs=2, verbose=0)
    assert calls
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.skipif(not ON_TENSORFLOW, reason="a custom loop of TensorFlow")
def test_class_means_in_force_are_respected(rng):
    """Outside `fit` a step may meet class means: then they are the centers."""
    import tensorflow as tf

    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=5, verbose=0)
    model.fit_centers(x, y)

    def gradient():
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs)
        return tape.gradient(loss, model.trainable_variables)

    for function in (gradient, tf.function(gradient)):
        fused = function()
        with fused_ops.stock_operations():
            stock = gradient()
        for a, b in zip(fused, stock, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_in_training_the_loss_is_that_of_the_logits(rng, calls):
    """While anchors are in force, distances follow from logits.

    `compute_loss` takes outputs that belong together: of a training step with
    the fused operation it reads the logits alone.
    """
    x, y = blobs(rng)
    model = small_classifier()
    model.build((None, 5))
    outputs = model(x, training=True)
    changed = {**outputs, "logits": 2.0 * outputs["logits"]}
    loss = model.compute_loss(x, y, changed)
    assert calls
    d = oracle.distances(changed["logits"], 10.0 * np.eye(3))
    assert float(loss) == pytest.approx(oracle.cac_loss(y, d).mean(), rel=1e-5)


def test_distances_count_where_the_step_does_not_train(rng, calls):
    """With no class means assigned, with them, and with anchors again."""
    x, y = blobs(rng)
    model = small_classifier()
    model.build((None, 5))

    def assert_loss_of_distances(training=False, more=1.0):
        outputs = model(x)
        changed = {**outputs, "distances": outputs["distances"] + more}
        calls.clear()
        loss = model.compute_loss(x, y, changed, training=training)
        expected = cac_tf.losses.CACLoss()(y, changed["distances"])
        assert calls == []
        np.testing.assert_allclose(loss, expected, rtol=1e-6)

    assert_loss_of_distances()
    model.distance_head.replace_centers(rng.standard_normal((3, 3)))
    assert_loss_of_distances()
    if ON_TENSORFLOW:  # JAX traces both branches.
        # Of the class means, by their own distances.
        assert_loss_of_distances(training=True, more=0.0)
    model.distance_head.assign_anchors()
    assert_loss_of_distances()


def test_a_diverged_training_is_explained(rng):
    """Not by the operation: `fit` has the whole story."""
    x, y = blobs(rng)
    model = small_classifier()
    model.compile(keras.optimizers.SGD(1e20), cac_tf.losses.CACLoss())
    with pytest.raises(FloatingPointError, match="the training diverged"):
        model.fit(x, y, epochs=3, verbose=0)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="only TensorFlow exports")
def test_an_export_holds_stock_operations_only(trained_blobs, tmp_path):
    """And one that would not is refused, and leaves nothing behind."""
    import tensorflow as tf

    model, x, y = trained_blobs
    model.export(tmp_path / "stock")

    @keras.saving.register_keras_serializable(package="CacTfTests")
    class Fused(keras.layers.Layer):
        def call(self, logits):
            labels = tf.zeros_like(logits[:, 0], "int32")
            return logits + 0.0 * already_traced(logits, labels)[:, None]

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 3), tf.float32),
            tf.TensorSpec((None,), tf.int32),
        ]
    )
    def fused_loss(logits, labels):
        return cac_tf.losses.cac_loss_from_logits(labels, logits)

    # A tf.function by itself would be traced anew.
    already_traced = fused_loss.get_concrete_function()
    backbone = keras.Sequential(
        [keras.Input([5]), keras.layers.Dense(3), Fused()]
    )
    model = small_classifier(backbone=backbone)
    model.fit(x, y, epochs=1, verbose=0)
    model.calibrate(x, true_positive_rate=0.9)
    with pytest.raises(RuntimeError, match="CacTf>AnchoredCacLoss, which a"):
        model.export(tmp_path / "fused")
    assert [path.name for path in tmp_path.iterdir()] == ["stock"]


def test_weights_are_saved_where_they_always_were(rng, tmp_path):
    """Whether or not the model is compiled, here or where it is loaded."""
    x, y = blobs(rng)
    model = small_classifier()
    model.fit(x, y, epochs=1, verbose=0)
    model.fit_centers(x, y)
    model.save(tmp_path / "model.keras")
    plain = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_array_equal(plain.centers, model.centers)
    plain.save(tmp_path / "plain.keras")
    for name in ("model", "plain"):
        again = cac_tf.load_model(tmp_path / f"{name}.keras")
        np.testing.assert_array_equal(again.centers, model.centers)
        expected = model(x)
        outputs = again(x)
        assert sorted(outputs) == sorted(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(outputs[key], value)


TWO_REPLICAS = """
import json
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)

import cac_tf
from cac_tf import ops
from tests.conftest import blobs, small_classifier

x, y = blobs(np.random.default_rng(0))
binding, calls, found = ops.binding(), [], []
original = binding.anchored_cac_loss
binding.anchored_cac_loss = lambda *a: (calls.append(1), original(*a))[1]
for enabled in (True, False):
    ops.set_enabled(enabled)
    keras.utils.set_random_seed(0)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        layers = [keras.layers.Dense(3), keras.layers.BatchNormalization()]
        model = small_classifier(
            backbone=keras.Sequential([keras.Input([5]), *layers])
        )
    history = model.fit(x, y, epochs=2, verbose=0, batch_size=48).history
    found.append((len(calls), history))
print(json.dumps(found))
"""


@pytest.mark.skipif(not ON_TENSORFLOW, reason="replicas of tf.distribute")
def test_every_replica_takes_the_fused_loss():
    result = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (fused_calls, fused), (calls, stock) = json.loads(result.stdout)
    assert (fused_calls, calls) == (2, 2)
    for name, values in fused.items():
        np.testing.assert_allclose(values, stock[name], rtol=1e-5)
