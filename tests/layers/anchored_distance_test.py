# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.layers import AnchoredDistance
from cac_tf.layers.anchored_distance import anchored_distances
from cac_tf.layers.anchored_distance import dense_distances
from tests import execution
from tests import oracle

NOISES = (1.0, 0.1, 0.01, 0.001)
CLASS_COUNTS = (2, 6, 20, 200)


def class_means(rng, num_classes):
    """Float32 centers near the anchors, as training leaves them."""
    shift = 0.5 * rng.standard_normal((num_classes, num_classes))
    return np.float32(10 * np.eye(num_classes) + shift / np.sqrt(num_classes))


def near(rng, centers):
    """Logits at four distances from the centers."""
    parts = [oracle.near_centers(rng, centers, n, rows=16)[0] for n in NOISES]
    return np.concatenate(parts)


@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_distances_equal_oracle(rng, mode, num_classes):
    anchors = 10.0 * np.eye(num_classes)
    logits = near(rng, anchors)
    actual = execution.compiled(anchored_distances, mode)(logits)
    expected = oracle.distances(logits, anchors)
    assert oracle.relative_error(actual, expected) <= 4e-7
    centers = class_means(rng, num_classes)
    logits = near(rng, centers)
    actual = execution.compiled(dense_distances, mode)(logits, centers)
    expected = oracle.distances(logits, centers)
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
    centers = 10.0 * np.eye(num_classes)
    if kind == "dense":
        centers = centers + rng.standard_normal(centers.shape)
    logits = rng.standard_normal((2, num_classes))
    weights = rng.standard_normal((2, num_classes))

    def weighted(z):
        if kind == "anchored":
            return anchored_distances(z) * weights
        return dense_distances(z, centers) * weights

    with execution.float64():
        actual = execution.gradient(weighted)(logits)
    expected = oracle.central_differences(
        lambda z: oracle.distances(z, centers) * weights, logits
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)


def test_gradient_by_centers_equals_finite_differences(rng):
    logits = rng.standard_normal((4, 3))
    centers = rng.standard_normal((5, 3))
    with execution.float64():
        actual = execution.gradient(lambda c: dense_distances(logits, c))(
            centers
        )
    expected = oracle.central_differences(
        lambda c: oracle.distances(logits, c), centers
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("num_classes", [4, 100])
def test_at_a_center_distance_and_gradient_are_right(mode, num_classes):
    logits = np.float32(10 * np.eye(num_classes)[:1])
    others = np.float32(10 * np.eye(num_classes))

    def dense(z):
        return dense_distances(z, others)

    for function in (anchored_distances, dense):
        distances = execution.compiled(function, mode)(logits)
        assert distances[0, 0] == 0.0
        np.testing.assert_allclose(distances[0, 1:], np.sqrt(200), rtol=2e-7)
        # What is left is the pull of the other centers.
        gradient = execution.gradient(function, mode)(logits)[0]
        expected = np.full(num_classes, -1 / np.sqrt(2))
        expected[0] = (num_classes - 1) / np.sqrt(2)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_equal_centers_share_their_gradient():
    centers = np.float32([[1, 0], [1, 0], [0, 5]])
    logits = np.float32([[1.001, 0]])
    actual = execution.gradient(lambda z: dense_distances(z, centers))(logits)
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


def test_nan_stays_in_its_row(mode):
    logits = np.float32([[10, 0], [np.nan, 0], [0, 10], [np.inf, 0]])
    distances = execution.compiled(anchored_distances, mode)(logits)
    assert np.isfinite(distances[[0, 2]]).all()
    assert np.isnan(distances[1]).all()
    assert not np.isfinite(distances[3]).any()


@pytest.mark.usefixtures("mixed_bfloat16")
def test_the_layer_is_float32_saved_and_without_weights(tmp_path):
    """In any model: 2000 x 2000 numbers of anchors would be 16 MB."""
    layer = AnchoredDistance(magnitude=5)
    model = keras.Sequential([keras.Input([2000], dtype="float32"), layer])
    assert model.weights == []
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 50_000
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].get_config() == layer.get_config()
    logits = np.zeros((1, 2000), "float32")
    logits[0, 1999] = 6.0
    distances = loaded.predict(logits, verbose=0)
    assert distances.dtype == np.float32
    expected = oracle.distances_to_anchors(logits, 5)
    np.testing.assert_allclose(distances, expected, rtol=1e-6)


@pytest.mark.parametrize("magnitude", [0.0, -1.0, np.nan, np.inf, 1e25, "10"])
def test_bad_magnitude(magnitude):
    with pytest.raises(ValueError, match="magnitude must be a number in 1e-18"):
        AnchoredDistance(magnitude)
    with pytest.raises(ValueError, match="magnitude must be a number in 1e-18"):
        anchored_distances(np.ones((2, 3), "float32"), magnitude)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 3), (2, 1)])
def test_logits_of_other_shapes(shape):
    with pytest.raises(ValueError, match=r"needs logits of shape \(batch, cl"):
        AnchoredDistance()(np.zeros(shape, "float32"))
