# SPDX-License-Identifier: Apache-2.0
"""The fused CAC loss against the equations and against stock operations."""

import functools
import itertools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from cac_tf import ops as fused_ops
from cac_tf.losses import cac_loss_from_logits
from tests import execution
from tests import oracle
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(
    fused_ops.binding() is None, reason="the fused operations are not built"
)

CLASS_COUNTS = (2, 6, 20, 200, 1000, 10000)
BATCHES = (1, 7, 128)
NOISES = (1.0, 0.1, 0.01, 0.001)
ON_TENSORFLOW = execution.BACKEND == "tensorflow"
tensorflow_only = pytest.mark.skipif(
    not ON_TENSORFLOW, reason="inside compiled JAX nothing can be raised"
)


def loss(logits, labels):
    return cac_loss_from_logits(labels, logits)


def terms(logits, labels):
    """Loss, anchor and tuplet loss of the fused operation, (3, B)."""
    outputs = fused_ops.binding().anchored_cac_loss(
        labels, logits, 10.0, 0.1, validate=False
    )
    return keras.ops.stack(outputs)


def near_anchors(num_classes, noise, rows, own_class):
    """Logits near an anchor, and their own or another class as labels."""
    rng = np.random.default_rng([num_classes, rows, int(1e4 * noise)])
    labels = rng.integers(0, num_classes, rows)
    logits = noise * rng.standard_normal((rows, num_classes))
    logits[np.arange(rows), labels] += 10.0
    if not own_class:
        labels = (labels + 1) % num_classes
    return logits.astype("float32"), labels.astype("int32")


@functools.cache
def expected(num_classes, noise, rows, own_class):
    logits, labels = near_anchors(num_classes, noise, rows, own_class)
    d = oracle.distances_to_anchors(logits)
    return (
        oracle.cac_loss(labels, d),
        oracle.anchor_loss(labels, d),
        oracle.tuplet_loss(labels, d),
        oracle.cac_gradient_to_anchors(labels, logits),
    )


@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_equals_the_equations(mode, num_classes):
    values = execution.compiled(terms, mode)
    gradients = execution.gradient(loss, mode)
    for case in itertools.product(NOISES, BATCHES, (True, False)):
        logits, labels = near_anchors(num_classes, *case)
        total, anchor, tuplet, gradient = expected(num_classes, *case)
        actual = values(logits, labels)
        assert oracle.relative_error(actual[0], total) <= 1e-6, case
        assert oracle.relative_error(actual[1], anchor) <= 1e-6, case
        assert oracle.relative_error(actual[2], tuplet) <= 4e-6, case
        by_logits = gradients(logits, labels)
        # Near a wrong anchor two opposite pulls may almost cancel.
        tolerance = 1e-6 if case[-1] else 4e-6
        error = oracle.row_relative_error(by_logits, gradient)
        assert error <= tolerance, case


def test_the_oracle_for_many_classes_is_the_oracle(rng):
    anchors = 10.0 * np.eye(7)
    logits, labels = oracle.near_centers(rng, anchors, 0.5, rows=9)
    np.testing.assert_allclose(
        oracle.distances_to_anchors(logits), oracle.distances(logits, anchors)
    )
    np.testing.assert_allclose(
        oracle.cac_gradient_to_anchors(labels, logits),
        oracle.cac_gradient(labels, logits, anchors),
        atol=1e-12,
    )


@pytest.mark.parametrize("num_classes", CLASS_COUNTS[:-1])
def test_equals_stock_operations(rng, mode, num_classes):
    logits = np.float32(4 * rng.standard_normal((32, num_classes)))
    labels = rng.integers(0, num_classes, 32).astype("int32")
    fused = execution.compiled(loss, mode)(logits, labels)
    fused_gradient = execution.gradient(loss, mode)(logits, labels)
    with fused_ops.stock_operations():
        stock = execution.compiled(loss, mode)(logits, labels)
        stock_gradient = execution.gradient(loss, mode)(logits, labels)
    assert oracle.relative_error(fused, stock) <= 1e-6
    assert oracle.row_relative_error(fused_gradient, stock_gradient) <= 1e-6


@pytest.mark.parametrize("num_classes", [2, 20, 1000])
def test_at_the_anchor_the_gradient_of_the_distance_is_0(mode, num_classes):
    labels = np.array([0, num_classes - 1, num_classes // 2], "int32")
    logits = np.zeros((3, num_classes), "float32")
    logits[np.arange(3), labels] = 10.0
    d = oracle.distances_to_anchors(logits)
    actual = execution.compiled(loss, mode)(logits, labels)
    np.testing.assert_allclose(actual, oracle.cac_loss(labels, d), rtol=4e-6)
    np.testing.assert_allclose(
        execution.gradient(loss, mode)(logits, labels),
        oracle.cac_gradient_to_anchors(labels, logits),
        rtol=4e-6,
        atol=1e-10,
    )


@pytest.mark.parametrize("num_classes", [2, 20, 1000])
def test_ties_and_huge_logits(rng, mode, num_classes):
    values = execution.compiled(loss, mode)
    gradients = execution.gradient(loss, mode)
    for scale in (0.0, 1e-4, 1e4, 1e8):
        logits = np.float32(scale * rng.standard_normal((16, num_classes)))
        logits[:4] = np.float32(scale)  # All classes equally near.
        labels = rng.integers(0, num_classes, 16).astype("int32")
        total = oracle.cac_loss(labels, oracle.distances_to_anchors(logits))
        error = oracle.relative_error(values(logits, labels), total)
        assert error <= 1e-6, scale
        gradient = gradients(logits, labels)
        reference = oracle.cac_gradient_to_anchors(labels, logits)
        # Two shares of a half, say, cancel to what is left of their digits.
        tolerance = 1e-6 if scale < 1 else 1e-5
        error = oracle.row_relative_error(gradient, reference)
        assert error <= tolerance, scale


@tensorflow_only
@pytest.mark.parametrize("mode", execution.MODES)
def test_a_foreign_state_harms_nobody(mode):
    """The gradient operation on its own, with labels that are none."""
    operations = fused_ops.binding()._operations

    def gradient(z, y, state, up):
        return operations.cac_tf_anchored_cac_loss_grad(
            logits=z,
            labels=y,
            row_state=state,
            loss_upstream=up,
            anchor_upstream=up,
            tuplet_upstream=up,
            magnitude=10.0,
            anchor_weight=0.1,
        )

    logits = np.ones((3, 4), "float32")
    state = operations.cac_tf_anchored_cac_loss(
        logits=logits, labels=[0, 1, 2], magnitude=10.0, anchor_weight=0.1
    ).row_state.numpy()
    up = np.ones(3, "float32")
    right = np.array([0, 1, 2], "int32")
    run = execution.compiled(gradient, mode)
    clean = run(logits, right, state, up)
    broken = state.copy()
    broken[1, -1] = 1e9
    for labels, row_state in (
        (np.array([0, -3, 2], "int32"), state),
        (np.array([0, 2**30, 2], "int32"), state),
        (right, broken),
    ):
        found = run(logits, labels, row_state, up)
        np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
        assert np.isnan(found[1]).all()


@tensorflow_only
def test_a_dynamic_batch_inside_xla(rng):
    """And of nothing else is a dynamic number taken."""
    import tensorflow as tf

    logits = np.float32(rng.standard_normal((6, 4)))
    labels = rng.integers(0, 4, 6).astype("int32")
    keep = np.array([True, False, True, True, False, True])

    @tf.function(jit_compile=True)
    def mean(z, y, keep):
        kept = loss(tf.boolean_mask(z, keep), tf.boolean_mask(y, keep))
        return tf.reduce_mean(kept)

    z = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = mean(z, labels, keep)
    expected = oracle.cac_loss(
        labels[keep], oracle.distances_to_anchors(logits[keep])
    )
    np.testing.assert_allclose(value, expected.mean(), rtol=1e-6)
    gradient = np.zeros_like(logits)
    gradient[keep] = oracle.cac_gradient_to_anchors(
        labels[keep], logits[keep]
    ) / len(expected)
    np.testing.assert_allclose(
        tape.gradient(value, z), gradient, rtol=1e-5, atol=1e-7
    )

    @tf.function(jit_compile=True)
    def of_some_classes(z, y, keep):
        return terms(tf.boolean_mask(z, keep, axis=1), y)

    with pytest.raises(
        tf.errors.InvalidArgumentError, match="only the number of rows"
    ):
        of_some_classes(z, labels, keep[:4])


@pytest.mark.parametrize("num_classes", [5, 20, 1000])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_read_as_it_is(rng, mode, dtype, num_classes):
    """Of the same numbers in float32; the gradient is rounded, once."""
    logits = np.float32(4 * rng.standard_normal((16, num_classes)))
    logits = np.asarray(keras.ops.cast(logits, dtype))
    labels = rng.integers(0, num_classes, 16).astype("int32")
    wide = logits.astype("float32")
    values = execution.compiled(terms, mode)
    found = values(logits, labels)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values(wide, labels))
    gradients = execution.gradient(loss, mode)
    found = gradients(logits, labels)
    assert found.dtype == logits.dtype
    np.testing.assert_array_equal(
        found, gradients(wide, labels).astype(logits.dtype)
    )


@tensorflow_only
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_no_copy_of_half_precision_is_made(dtype):
    import tensorflow as tf

    @tf.function
    def gradient(z, y):
        with tf.GradientTape() as tape:
            tape.watch(z)
            total = tf.reduce_sum(loss(z, y))
        return tape.gradient(total, z)

    graph = gradient.get_concrete_function(
        tf.TensorSpec((None, 3), dtype), tf.TensorSpec((None,), "int32")
    ).graph
    assert "Cast" not in {node.type for node in graph.get_operations()}


def test_float64_is_left_to_stock_operations(rng):
    logits = 3 * rng.standard_normal((4, 5))
    labels = np.array([0, 1, 2, 3], "int32")
    with execution.float64():
        actual = execution.compiled(loss, "eager")(logits, labels)
    assert actual.dtype == np.float64
    d = oracle.distances_to_anchors(logits)
    np.testing.assert_allclose(actual, oracle.cac_loss(labels, d), rtol=1e-12)


@pytest.mark.parametrize("term", [0, 1, 2])
def test_every_output_has_the_gradient_of_finite_differences(rng, mode, term):
    logits = np.float32(3 * rng.standard_normal((3, 5)))
    labels = np.array([0, 4, 2], "int32")
    weights = np.float32([1.0, -2.0, 0.5])

    def weighted(z, y):
        return terms(z, y)[term] * weights

    def reference(z):
        d = oracle.distances_to_anchors(z)
        function = (oracle.cac_loss, oracle.anchor_loss, oracle.tuplet_loss)
        return function[term](labels, d) * weights

    np.testing.assert_allclose(
        execution.gradient(weighted, mode)(logits, labels),
        oracle.central_differences(reference, np.float64(logits)),
        rtol=1e-5,
        atol=1e-6,
    )


def test_second_derivatives(rng, mode):
    """Of a gradient penalty, by finite differences of the gradient."""
    logits = np.float32(3 * rng.standard_normal((3, 4)))
    labels = np.array([0, 3, 1], "int32")

    def penalty(z, y):
        if ON_TENSORFLOW:
            import tensorflow as tf

            with tf.GradientTape() as tape:
                tape.watch(z)
                total = tf.reduce_sum(loss(z, y))
            gradient = tape.gradient(total, z)
        else:
            import jax

            gradient = jax.grad(lambda z: loss(z, y).sum())(z)
        return keras.ops.sum(keras.ops.square(gradient), axis=-1)

    def reference(z):
        gradient = oracle.cac_gradient_to_anchors(labels, z)
        return (gradient**2).sum(axis=1)

    np.testing.assert_allclose(
        execution.gradient(penalty, mode)(logits, labels),
        oracle.central_differences(reference, np.float64(logits)),
        rtol=1e-4,
        atol=1e-5,
    )


def test_an_empty_batch(mode):
    logits = np.zeros((0, 6), "float32")
    labels = np.zeros((0,), "int32")
    assert execution.compiled(loss, mode)(logits, labels).shape == (0,)
    gradient = execution.gradient(loss, mode)(logits, labels)
    assert gradient.shape == (0, 6)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "uint32", "float32"]
)
def test_labels_of_every_type(rng, mode, dtype):
    logits = np.float32(rng.standard_normal((5, 3)))
    labels = np.array([0, 1, 2, 1, 0])
    d = oracle.distances_to_anchors(logits)
    actual = execution.compiled(loss, mode)(logits, labels.astype(dtype))
    np.testing.assert_allclose(actual, oracle.cac_loss(labels, d), rtol=1e-6)
    column = execution.compiled(loss, mode)(logits, labels[:, None])
    np.testing.assert_allclose(column, actual, rtol=1e-6)


BAD_ROWS = {
    "label -1": ((-1, 0.5), "label of row 1 is -1; labels must be in 0...2"),
    "label too large": ((3, 0.5), "label of row 1 is 3"),
    "label of 2**30": ((2**30, 0.5), "label of row 1 is 1073741824"),
    "NaN": ((0, np.nan), "Row 1 of the logits holds NaN"),
    "infinity": ((0, np.inf), "Row 1 of the logits holds NaN or infinity"),
    "not to be squared": ((0, 1e25), "too large to be squared"),
}


def bad_batch(name):
    label, value = BAD_ROWS[name][0]
    logits = np.ones((3, 3), "float32")
    logits[1, 2] = value
    return logits, np.array([0, label, 2], "int32")


@tensorflow_only
@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_an_error_on_a_cpu(mode, name):
    import tensorflow as tf

    with (
        tf.device("CPU"),
        pytest.raises(tf.errors.InvalidArgumentError, match=BAD_ROWS[name][1]),
    ):
        execution.compiled(loss, mode)(*bad_batch(name))


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_nan_where_nothing_can_be_raised(mode, name):
    """Inside XLA and in JAX always, and with validate=False."""
    logits, labels = bad_batch(name)
    validate = ON_TENSORFLOW and mode == "xla"

    def unchecked(z, y):
        return cac_loss_from_logits(y, z, validate=validate)

    actual = execution.compiled(unchecked, mode)(logits, labels)
    np.testing.assert_array_equal(np.isnan(actual), [False, True, False])
    gradient = execution.gradient(unchecked, mode)(logits, labels)
    np.testing.assert_array_equal(
        np.isnan(gradient).all(axis=1), [False, True, False]
    )
    np.testing.assert_array_equal(
        np.isnan(gradient).any(axis=1), [False, True, False]
    )


@tensorflow_only
@pytest.mark.parametrize("label", [1.5, np.nan, 1e12, -1e12])
def test_a_float_label_that_is_no_class_is_an_error(label):
    import tensorflow as tf

    labels = np.float32([0, label, 2])
    with (
        tf.device("CPU"),
        pytest.raises(tf.errors.InvalidArgumentError, match="row 1"),
    ):
        cac_loss_from_logits(labels, np.ones((3, 3), "float32"))


@tensorflow_only
@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ((3, 4), (2,), r"must be equal|labels must have shape \(3,\)"),
        ((3,), (3,), r"rank 2|logits must have shape \(batch, classes\)"),
        ((3, 4), (3, 1), r"rank 1|labels must have shape \(3,\)"),
        ((3, 1), (3,), "2 to 16777216 classes; got 1"),
    ],
)
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_mismatched_shapes_are_errors(logits, labels, message, mode):
    """Of the operation itself; the functions on top say it in their words."""
    import tensorflow as tf

    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match=message
    ):
        execution.compiled(terms, mode)(
            np.ones(logits, "float32"), np.zeros(labels, "int32")
        )


@tensorflow_only
def test_shapes_that_are_known_only_at_run_time():
    import tensorflow as tf

    unknown = tf.TensorSpec(None, tf.float32)

    @tf.function(input_signature=[unknown, tf.TensorSpec(None, tf.int32)])
    def run(logits, labels):
        return terms(logits, labels)

    good = run(tf.ones((2, 3)), tf.constant([0, 1]))
    assert good.shape == (3, 2)
    for logits, labels in (((2, 3), 3), ((2,), 2), ((2, 1), 2), ((2, 3, 1), 2)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(tf.ones(logits), tf.zeros(labels, tf.int32))


@pytest.mark.skipif(ON_TENSORFLOW, reason="JAX's own transformation")
def test_vmap(rng):
    import jax

    logits = np.float32(rng.standard_normal((4, 6, 5)))
    labels = rng.integers(0, 5, (4, 6)).astype("int32")
    binding = fused_ops.binding()

    def total(z, y):
        return binding.anchored_cac_loss(y, z, 10.0, 0.1, False).loss.sum()

    mapped = jax.vmap(jax.grad(total))(logits, labels)
    one_by_one = [
        jax.grad(total)(z, y) for z, y in zip(logits, labels, strict=True)
    ]
    np.testing.assert_allclose(mapped, np.stack(one_by_one), rtol=1e-6)


@tensorflow_only
def test_a_saved_function_is_loaded_with_its_gradient(rng, tmp_path):
    import tensorflow as tf

    class Module(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec((None, 4), tf.float32),
                tf.TensorSpec((None,), tf.int32),
            ]
        )
        def loss(self, logits, labels):
            return cac_loss_from_logits(labels, logits)

    logits = tf.constant(np.float32(rng.standard_normal((5, 4))))
    labels = tf.constant([0, 1, 2, 3, 0])
    tf.saved_model.save(Module(), str(tmp_path / "module"))
    loaded = tf.saved_model.load(str(tmp_path / "module"))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loaded.loss(logits, labels)
    np.testing.assert_array_equal(value, loss(logits, labels))
    np.testing.assert_array_equal(
        tape.gradient(value, logits),
        execution.gradient(loss)(logits.numpy(), labels.numpy()),
    )


ONE_OR_TWO_THREADS = """
    import json, sys
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    from cac_tf import ops
    from tests import execution
    from tests.ops import fused_loss_test as test

    logits, labels = test.near_anchors(1000, 1.0, 512, True)
    found = []
    for mode in ("graph", "xla"):
        loss = execution.compiled(test.loss, mode)(logits, labels)
        gradient = execution.gradient(test.loss, mode)(logits, labels)
        found.append((loss.tobytes().hex(), gradient.tobytes().hex()))
    assert ops.binding() is not None
    print(json.dumps(found))
"""


@tensorflow_only
def test_the_number_of_threads_changes_no_bit():
    found = []
    for threads in ("1", "2"):
        code = "\n".join(
            line.removeprefix("    ") for line in ONE_OR_TWO_THREADS.split("\n")
        )
        result = subprocess.run(
            [sys.executable, "-c", code, threads],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        found += json.loads(result.stdout)
    assert all(one == found[0] for one in found)
