# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.layers import AnchoredDistance
from cac_tf.layers import anchored_distances
from cac_tf.layers import dense_distances
from tests import execution
from tests import oracle

NOISES = (1.0, 0.1, 0.01, 0.001)
CLASS_COUNTS = (2, 6, 20, 200)


def class_means(rng, num_classes):
    """Float32 centres near the anchors, as training leaves them."""
    shift = 0.5 * rng.standard_normal((num_classes, num_classes))
    return np.float32(10 * np.eye(num_classes) + shift / np.sqrt(num_classes))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_distances_to_anchors_equal_oracle(rng, mode, num_classes, noise):
    anchors = 10.0 * np.eye(num_classes)
    logits, _ = oracle.near_centres(rng, anchors, noise, rows=64)
    actual = execution.compiled(anchored_distances, mode)(logits)
    expected = oracle.distances(logits, anchors)
    assert oracle.relative_error(actual, expected) <= 4e-7


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_distances_to_class_means_equal_oracle(rng, mode, num_classes, noise):
    centres = class_means(rng, num_classes)
    logits, _ = oracle.near_centres(rng, centres, noise, rows=64)
    actual = execution.compiled(dense_distances, mode)(logits, centres)
    expected = oracle.distances(logits, centres)
    assert oracle.relative_error(actual, expected) <= 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_distances_keep_precision_at_any_scale(rng, scale):
    logits = np.float32(scale * rng.standard_normal((64, 20)))
    expected = oracle.distances(logits, 10.0 * np.eye(20))
    actual = np.asarray(anchored_distances(logits))
    assert oracle.relative_error(actual, expected) <= 4e-7


def test_tied_largest_logits(rng):
    logits = np.float32([[5, 5, 0], [-5, 5, 5], [0, 0, 0], [10, 10, 10]])
    expected = oracle.distances(logits, 10.0 * np.eye(3))
    actual = np.asarray(anchored_distances(logits))
    assert oracle.relative_error(actual, expected) <= 4e-7


@pytest.mark.parametrize("num_classes", [3, 100])
@pytest.mark.parametrize("kind", ["anchored", "dense"])
def test_gradient_equals_finite_differences(rng, kind, num_classes):
    """In float64, with a random weight for every distance."""
    centres = 10.0 * np.eye(num_classes)
    if kind == "dense":
        centres = centres + rng.standard_normal(centres.shape)
    logits = rng.standard_normal((2, num_classes))
    weights = rng.standard_normal((2, num_classes))

    def weighted(z):
        if kind == "anchored":
            return anchored_distances(z) * weights
        return dense_distances(z, centres) * weights

    with execution.float64():
        actual = execution.gradient(weighted)(logits)
    expected = oracle.central_differences(
        lambda z: oracle.distances(z, centres) * weights, logits
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)


def test_gradient_by_centres_equals_finite_differences(rng):
    logits = rng.standard_normal((4, 3))
    centres = rng.standard_normal((5, 3))
    with execution.float64():
        actual = execution.gradient(lambda c: dense_distances(logits, c))(
            centres
        )
    expected = oracle.central_differences(
        lambda c: oracle.distances(logits, c), centres
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("num_classes", [4, 100])
def test_at_a_centre_distance_and_gradient_are_right(mode, num_classes):
    logits = np.float32(10 * np.eye(num_classes)[:1])
    others = np.float32(10 * np.eye(num_classes))

    def dense(z):
        return dense_distances(z, others)

    for function in (anchored_distances, dense):
        distances = execution.compiled(function, mode)(logits)
        assert distances[0, 0] == 0.0
        np.testing.assert_allclose(distances[0, 1:], np.sqrt(200), rtol=2e-7)
        # What is left is the pull of the other centres.
        gradient = execution.gradient(function, mode)(logits)[0]
        expected = np.full(num_classes, -1 / np.sqrt(2))
        expected[0] = (num_classes - 1) / np.sqrt(2)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_equal_centres_share_their_gradient():
    centres = np.float32([[1, 0], [1, 0], [0, 5]])
    logits = np.float32([[1.001, 0]])
    actual = execution.gradient(lambda z: dense_distances(z, centres))(logits)
    expected = np.array(
        [2.0 + 1.001 / np.hypot(1.001, 5), -5 / np.hypot(1.001, 5)]
    )
    np.testing.assert_allclose(actual[0], expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    logits = keras.ops.cast([[10.0, 1.0]], dtype)
    distances = anchored_distances(logits)
    assert keras.backend.standardize_dtype(distances.dtype) == "float32"
    np.testing.assert_allclose(
        np.asarray(distances), [[1.0, np.sqrt(181)]], rtol=2e-7
    )


def test_layer_is_float32_under_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        layer = AnchoredDistance(2)
        distances = layer(np.float32([[10.0, 1.0]]))
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(distances.dtype) == "float32"
    assert layer.centres.dtype == "float32"
    np.testing.assert_allclose(np.asarray(distances)[0, 0], 1.0, rtol=1e-7)


def test_nan_stays_in_its_row(mode):
    logits = np.float32([[10, 0], [np.nan, 0], [0, 10], [np.inf, 0]])
    distances = execution.compiled(anchored_distances, mode)(logits)
    assert np.isfinite(distances[[0, 2]]).all()
    assert np.isnan(distances[1]).all()
    assert not np.isfinite(distances[3]).any()


def test_layer_follows_its_centres(mode, rng):
    """Compiled once, the layer sees class means and anchors come and go."""
    layer = AnchoredDistance(3, magnitude=5.0)
    layer.build((None, 3))
    logits = np.float32(rng.standard_normal((7, 3)))
    if execution.BACKEND == "jax":
        # Under JAX state is an argument of what is compiled.
        def call():
            import jax

            stateless = layer.stateless_call
            if mode == "jit":
                stateless = jax.jit(layer.stateless_call)
            values = [v.value for v in layer.non_trainable_variables]
            return np.asarray(stateless([], values, logits)[0])
    else:
        compiled = execution.compiled(layer, mode)

        def call():
            return compiled(logits)

    anchors, means = 5.0 * np.eye(3), rng.standard_normal((3, 3))
    assert layer.has_anchors
    np.testing.assert_allclose(
        call(), oracle.distances(logits, anchors), rtol=1e-6
    )
    layer.assign_class_means(means)
    assert not layer.has_anchors
    np.testing.assert_allclose(
        call(), oracle.distances(logits, np.float32(means)), rtol=1e-6
    )
    layer.assign_anchors()
    np.testing.assert_allclose(
        call(), oracle.distances(logits, anchors), rtol=1e-6
    )


def test_loaded_weights_bring_their_kind_of_centres(tmp_path, rng):
    def make():
        return keras.Sequential([keras.Input([3]), AnchoredDistance(3)])

    model, fresh = make(), make()
    means = rng.standard_normal((3, 3))
    model.layers[0].assign_class_means(means)
    logits = np.float32(rng.standard_normal((4, 3)))
    fresh.predict(logits, verbose=0)  # compiled with anchors
    path = tmp_path / "centres.weights.h5"
    model.save_weights(path)
    fresh.load_weights(path)
    np.testing.assert_allclose(
        fresh.predict(logits, verbose=0),
        oracle.distances(logits, np.float32(means)),
        rtol=1e-6,
    )


def test_trains_inside_a_plain_keras_model(tmp_path):
    """The head in somebody's own functional model, saved and loaded."""
    from cac_tf.losses import CACLoss
    from tests.conftest import blobs

    x, y = blobs(np.random.default_rng(0))
    inputs = keras.Input([5])
    outputs = AnchoredDistance(3)(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.1), CACLoss())
    history = model.fit(x, y, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.2 * history[0]
    assert (model.predict(x, verbose=0).argmin(axis=1) == y).mean() > 0.99
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )


@pytest.mark.parametrize("num_classes", [1, 0, 2.5])
def test_bad_number_of_classes(num_classes):
    with pytest.raises(ValueError, match="at least 2"):
        AnchoredDistance(num_classes)


@pytest.mark.parametrize("magnitude", [0.0, -1.0, np.nan, np.inf])
def test_bad_magnitude(magnitude):
    with pytest.raises(ValueError, match="magnitude must be positive"):
        AnchoredDistance(3, magnitude=magnitude)


def test_logits_of_the_wrong_width():
    with pytest.raises(ValueError, match=r"\(batch, 3\).*\(2, 4\)"):
        AnchoredDistance(3)(np.zeros((2, 4), "float32"))


def test_bad_class_means():
    layer = AnchoredDistance(2)
    layer.build((None, 2))
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        layer.assign_class_means(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"rows \[1\] are not"):
        layer.assign_class_means([[0.0, 1.0], [np.nan, 0.0]])
    assert layer.has_anchors
