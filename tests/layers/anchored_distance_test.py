# SPDX-License-Identifier: Apache-2.0
import warnings

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
    """Float32 centers near the anchors, as training leaves them."""
    shift = 0.5 * rng.standard_normal((num_classes, num_classes))
    return np.float32(10 * np.eye(num_classes) + shift / np.sqrt(num_classes))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_distances_to_anchors_equal_oracle(rng, mode, num_classes, noise):
    anchors = 10.0 * np.eye(num_classes)
    logits, _ = oracle.near_centers(rng, anchors, noise, rows=64)
    actual = execution.compiled(anchored_distances, mode)(logits)
    expected = oracle.distances(logits, anchors)
    assert oracle.relative_error(actual, expected) <= 4e-7


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("num_classes", CLASS_COUNTS)
def test_distances_to_class_means_equal_oracle(rng, mode, num_classes, noise):
    centers = class_means(rng, num_classes)
    logits, _ = oracle.near_centers(rng, centers, noise, rows=64)
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


def test_layer_is_float32_under_mixed_precision(mixed_bfloat16):
    layer = AnchoredDistance(2)
    distances = layer(np.float32([[10.0, 1.0]]))
    assert keras.backend.standardize_dtype(distances.dtype) == "float32"
    assert layer.centers.dtype == "float32"
    np.testing.assert_allclose(np.asarray(distances)[0, 0], 1.0, rtol=1e-7)


def test_nan_stays_in_its_row(mode):
    logits = np.float32([[10, 0], [np.nan, 0], [0, 10], [np.inf, 0]])
    distances = execution.compiled(anchored_distances, mode)(logits)
    assert np.isfinite(distances[[0, 2]]).all()
    assert np.isnan(distances[1]).all()
    assert not np.isfinite(distances[3]).any()


def runner(layer, mode):
    """The layer as `mode` runs it, compiled at the first call."""
    if execution.BACKEND == "tensorflow":
        return execution.compiled(layer, mode)
    import jax

    # Under JAX state is an argument of what is compiled.
    stateless = layer.stateless_call
    if mode == "jit":
        stateless = jax.jit(stateless)

    def call(logits):
        values = [
            [v.value for v in variables]
            for variables in (
                layer.trainable_variables,
                layer.non_trainable_variables,
            )
        ]
        return np.asarray(stateless(*values, logits)[0])

    return call


def stays_with_anchors(mode):
    """Whether what is compiled does not see weights that come later."""
    return execution.BACKEND == "tensorflow" and mode != "eager"


# (K, D) of the layers below: as many logits as classes, more and fewer.
SHAPES = [(3, 3), (3, 5), (5, 3)]


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_layer_follows_its_centers(mode, rng, shape):
    """Compiled once, the layer sees class means and anchors come and go."""
    layer = AnchoredDistance(shape[0], magnitude=5.0, width=shape[1])
    layer.build((None, shape[1]))
    logits = np.float32(rng.standard_normal((7, shape[1])))
    anchors = oracle.distances(logits, 5.0 * np.eye(*shape))
    assert layer.has_anchors
    before = runner(layer, mode)
    np.testing.assert_allclose(before(logits), anchors, rtol=1e-6)
    np.testing.assert_array_equal(layer.centers, 5.0 * np.eye(*shape))
    first = rng.standard_normal(shape)
    if stays_with_anchors(mode):
        with pytest.warns(UserWarning, match="compiled before now still take"):
            layer.assign_class_means(first)
        np.testing.assert_allclose(before(logits), anchors, rtol=1e-6)
    else:
        layer.assign_class_means(first)
        np.testing.assert_allclose(
            before(logits),
            oracle.distances(logits, np.float32(first)),
            rtol=1e-6,
        )
    call = runner(layer, mode)
    for means in (first, rng.standard_normal(shape)):
        layer.assign_class_means(means)
        assert not layer.has_anchors
        np.testing.assert_array_equal(layer.centers, np.float32(means))
        expected = oracle.distances(logits, np.float32(means))
        np.testing.assert_allclose(call(logits), expected, rtol=1e-6)
        layer.assign_anchors()
        assert layer.has_anchors
        np.testing.assert_allclose(call(logits), anchors, rtol=1e-6)


def test_eager_calls_are_not_warned_about(rng):
    layer = AnchoredDistance(3)
    layer(np.zeros((2, 3), "float32"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.assign_class_means(rng.standard_normal((3, 3)))


def test_fewer_logits_than_centers(mode, rng):
    """There are no anchors: class means come first."""
    layer = AnchoredDistance(5, width=3)
    logits = np.float32(rng.standard_normal((7, 3)))
    assert not layer.has_anchors and layer.anchors is None
    for step in (
        lambda: layer(logits),
        lambda: layer.centers,
        layer.assign_anchors,
    ):
        with pytest.raises(
            ValueError, match="no anchors for 5 classes in 3 dimensions: call a"
        ):
            step()
    means = rng.standard_normal((5, 3))
    layer.assign_class_means(means)
    expected = oracle.distances(logits, np.float32(means))
    np.testing.assert_allclose(runner(layer, mode)(logits), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="no anchors"):
        layer.assign_anchors()
    np.testing.assert_array_equal(layer.centers, np.float32(means))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_learnt_centers(mode, rng, shape):
    """Distances and gradient by the centers, which start at the anchors."""
    layer = AnchoredDistance(
        shape[0], magnitude=4.0, width=shape[1], learnt=True, dtype="float64"
    )
    layer.build((None, shape[1]))
    assert not layer.has_anchors and layer.anchors is None
    (centers,) = layer.trainable_variables
    np.testing.assert_array_equal(layer.centers, layer.start)
    np.testing.assert_allclose(
        np.linalg.norm(layer.centers, axis=1), 4.0, rtol=1e-6
    )
    if shape[0] <= shape[1]:
        np.testing.assert_array_equal(layer.centers, 4.0 * np.eye(*shape))
    else:
        apart = oracle.distances(layer.centers, layer.centers)
        assert (apart + 9.0 * np.eye(len(apart))).min() > 0.5
    moved = layer.centers + np.float32(0.5 * rng.standard_normal(shape))
    layer.assign_class_means(moved)
    logits = rng.standard_normal((4, shape[1]))
    weights = rng.standard_normal((4, shape[0]))
    with execution.float64():
        distances = runner(layer, mode)(logits)
        actual = gradient_by_centers(layer, logits, weights, mode)
        same = execution.gradient(
            lambda c: dense_distances(logits, c) * weights, mode
        )(np.float64(moved))
    np.testing.assert_allclose(
        distances, oracle.distances(logits, moved), rtol=1e-12
    )
    expected = oracle.central_differences(
        lambda c: oracle.distances(logits, c) * weights, np.float64(moved)
    )
    # The weight, and with it its gradient, is float32.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, expected, rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="Learnt centers|no anchors"):
        layer.assign_anchors()


def gradient_by_centers(layer, logits, weights, mode):
    """Of the weighted sum of a learnt layer's distances."""
    if execution.BACKEND == "tensorflow":
        import tensorflow as tf

        def gradient(z):
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(layer(z) * weights)
            return tape.gradient(total, layer.trainable_variables[0].value)

        return execution.compiled(gradient, mode)(logits)
    import jax

    def total(centers, z):
        state = [v.value for v in layer.non_trainable_variables]
        return (layer.stateless_call([centers], state, z)[0] * weights).sum()

    gradient = jax.grad(total)
    if mode == "jit":
        gradient = jax.jit(gradient)
    return np.asarray(gradient(layer.trainable_variables[0].value, logits))


def kinds_of_centers(rng):
    """One layer of each kind, built, by its name."""
    layers = {}
    for k, d in SHAPES:
        for learnt in (False, True):
            layer = AnchoredDistance(k, 6.0, width=d, learnt=learnt)
            layer.build((None, d))
            name = f"{k} of {d}, {'learnt' if learnt else 'anchors'}"
            if learnt or k <= d:
                layers[name] = layer
            if not learnt:
                layer = AnchoredDistance(k, 6.0, width=d)
                layer.build((None, d))
                layer.assign_class_means(rng.standard_normal((k, d)))
                layers[f"{k} of {d}, class means"] = layer
    back = AnchoredDistance(3, 6.0)
    back.build((None, 3))
    back.assign_class_means(rng.standard_normal((3, 3)))
    back.assign_anchors()
    layers["3 of 3, anchors again"] = back
    large = AnchoredDistance(70)
    large.build((None, 70))
    large.assign_class_means(class_means(rng, 70))
    return {**layers, "70 of 70, class means": large}


KINDS = tuple(kinds_of_centers(np.random.default_rng(0)))


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_current_formula_equals_a_call(rng, mode, kind, direct):
    layer = kinds_of_centers(rng)[kind]
    logits = np.float32(3 * rng.standard_normal((9, layer.width)))
    logits[0] = layer.centers[0]
    formula = layer.current_formula(direct=direct)
    actual = execution.compiled(formula, mode)(logits)
    expected = oracle.distances(logits, layer.centers)
    assert actual[0, 0] == 0.0
    assert oracle.relative_error(actual, expected) <= 2e-6
    np.testing.assert_allclose(actual, runner(layer, mode)(logits), rtol=2e-6)


def test_current_formula_keeps_the_centers_of_its_time(rng):
    layer = AnchoredDistance(3)
    layer.build((None, 3))
    logits = np.float32(rng.standard_normal((4, 3)))
    formula = layer.current_formula()
    layer.assign_class_means(rng.standard_normal((3, 3)))
    np.testing.assert_allclose(
        np.asarray(formula(logits)),
        oracle.distances(logits, 10 * np.eye(3)),
        rtol=1e-6,
    )


def test_anchors_are_not_stored(rng):
    layer = AnchoredDistance(4, width=6)
    layer.build((None, 6))
    names = [weight.name for weight in layer.weights]
    assert names == ["centers_are_anchors"]
    assert layer.trainable_variables == []
    layer.assign_class_means(rng.standard_normal((4, 6)))
    layer.assign_class_means(rng.standard_normal((4, 6)))
    assert sorted(weight.name for weight in layer.weights) == [
        "centers",
        "centers_are_anchors",
    ]
    assert layer.trainable_variables == []
    assert layer.count_params() == 4 * 6 + 1
    layer.assign_anchors()
    assert len(layer.weights) == 2


@pytest.mark.parametrize("learnt", [False, True])
def test_class_means_before_the_first_call(rng, learnt):
    """They stay when the layer is called."""
    layer = AnchoredDistance(3, 6.0, learnt=learnt)
    np.testing.assert_array_equal(layer.centers, 6 * np.eye(3))
    assert layer.has_anchors is not learnt
    if not learnt:
        layer.assign_anchors()
        assert not layer.built
    means = np.float32(rng.standard_normal((3, 3)))
    layer.assign_class_means(means)
    logits = np.float32(rng.standard_normal((7, 3)))
    np.testing.assert_allclose(
        layer(logits), oracle.distances(logits, means), rtol=1e-6
    )
    assert not layer.has_anchors
    np.testing.assert_array_equal(layer.centers, means)


def test_many_anchors_make_no_large_file(tmp_path):
    """2000 x 2000 numbers would be 16 MB."""
    model = keras.Sequential([keras.Input([2000]), AnchoredDistance(2000)])
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 50_000
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    logits = np.zeros((1, 2000), "float32")
    logits[0, 1999] = 10.0
    distances = loaded.predict(logits, verbose=0)[0]
    assert distances[1999] == 0.0
    np.testing.assert_allclose(distances[:1999], np.sqrt(200), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(tmp_path, rng, kind):
    """As a model, and as weights into a fresh one."""
    layer = kinds_of_centers(rng)[kind]
    model = keras.Sequential([keras.Input([layer.width]), layer])
    logits = np.float32(rng.standard_normal((4, layer.width)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.layers[0]
    assert again.get_config() == layer.get_config()
    assert again.has_anchors == layer.has_anchors
    assert [w.name for w in again.weights] == [w.name for w in layer.weights]
    assert [w.trainable for w in again.weights] == [
        w.trainable for w in layer.weights
    ]
    np.testing.assert_array_equal(again.centers, layer.centers)
    np.testing.assert_array_equal(
        loaded.predict(logits, verbose=0), model.predict(logits, verbose=0)
    )
    again = keras.saving.load_model(tmp_path / "model.keras").layers[0]
    again.assign_class_means(layer.centers + 1.0)
    np.testing.assert_array_equal(again.centers, layer.centers + 1.0)


def fresh_model():
    return keras.Sequential([keras.Input([3]), AnchoredDistance(3)])


def test_loaded_weights_bring_their_kind_of_centers(tmp_path, rng):
    """Class means into a model with anchors, and the other way round."""
    model, other = fresh_model(), fresh_model()
    means = np.float32(rng.standard_normal((3, 3)))
    logits = np.float32(rng.standard_normal((4, 3)))
    to_anchors = oracle.distances(logits, 10 * np.eye(3))
    to_means = oracle.distances(logits, means)
    path = tmp_path / "anchors.weights.h5"
    other.save_weights(path)
    model.layers[0].assign_class_means(means)
    model.predict(logits, verbose=0)  # Compiled with class means.
    model.save_weights(tmp_path / "means.weights.h5")
    model.load_weights(path)
    assert model.layers[0].has_anchors
    np.testing.assert_allclose(
        model.predict(logits, verbose=0), to_anchors, rtol=1e-6
    )
    other.load_weights(tmp_path / "means.weights.h5")
    np.testing.assert_array_equal(other.layers[0].centers, means)
    np.testing.assert_allclose(
        other.predict(logits, verbose=0), to_means, rtol=1e-6
    )
    model.load_weights(tmp_path / "means.weights.h5")
    np.testing.assert_allclose(
        model.predict(logits, verbose=0), to_means, rtol=1e-6
    )


def test_class_means_loaded_into_a_compiled_model(tmp_path, rng):
    """A warning says what helps, and that does help."""
    model, fresh = fresh_model(), fresh_model()
    means = np.float32(rng.standard_normal((3, 3)))
    model.layers[0].assign_class_means(means)
    path = tmp_path / "centers.weights.h5"
    model.save_weights(path)
    logits = np.float32(rng.standard_normal((4, 3)))
    fresh.predict(logits, verbose=0)  # Compiled with anchors.
    if execution.BACKEND == "tensorflow":
        with pytest.warns(UserWarning, match=r"make_predict_function\(force=T"):
            fresh.load_weights(path)
        fresh.make_predict_function(force=True)
    else:
        fresh.load_weights(path)
    np.testing.assert_allclose(
        fresh.predict(logits, verbose=0),
        oracle.distances(logits, means),
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


@pytest.mark.parametrize("num_classes", [1, 0, 2.5, np.nan, "3"])
def test_bad_number_of_classes(num_classes):
    with pytest.raises(ValueError, match="at least 2"):
        AnchoredDistance(num_classes)


@pytest.mark.parametrize("magnitude", [0.0, -1.0, np.nan, np.inf, 1e25, "10"])
def test_bad_magnitude(magnitude):
    with pytest.raises(ValueError, match="magnitude must be a number in 1e-18"):
        AnchoredDistance(3, magnitude=magnitude)
    with pytest.raises(ValueError, match="magnitude must be a number in 1e-18"):
        anchored_distances(np.ones((2, 3), "float32"), magnitude)


def test_numbers_of_any_kind():
    for kind in (np.array, np.int64, keras.ops.convert_to_tensor):
        head = AnchoredDistance(kind(3), magnitude=kind(5))
        assert (head.num_classes, head.magnitude) == (3, 5.0)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 3), (2, 4)])
def test_logits_of_other_shapes(shape):
    with pytest.raises(ValueError, match=r"needs logits of shape \(batch, 3\)"):
        AnchoredDistance(3)(np.zeros(shape, "float32"))


@pytest.mark.parametrize("width", [0, -3, 2.5])
def test_bad_width(width):
    with pytest.raises(ValueError, match="width must be a whole number of at"):
        AnchoredDistance(3, width=width)


def test_logits_of_the_wrong_width():
    with pytest.raises(ValueError, match=r"\(batch, 3\).*\(2, 4\)"):
        AnchoredDistance(3)(np.zeros((2, 4), "float32"))
    with pytest.raises(ValueError, match=r"\(batch, 5\).*\(2, 3\)"):
        AnchoredDistance(3, width=5)(np.zeros((2, 3), "float32"))


def test_bad_class_means():
    layer = AnchoredDistance(2)
    layer.build((None, 2))
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        layer.assign_class_means(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"rows \[1\] are not"):
        layer.assign_class_means([[0.0, 1.0], [np.nan, 0.0]])
    assert layer.has_anchors
