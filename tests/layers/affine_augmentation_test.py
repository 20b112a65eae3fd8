# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from cac_tf.layers import AffineAugmentation
from cac_tf.layers.affine_augmentation import _bilinear
from cac_tf.layers.affine_augmentation import _inverse_affine
from tests import execution


def ramp(rows=4, size=8):
    """Images whose pixels tell where they come from, channels (row, column)."""
    grid = np.stack(np.meshgrid(*[np.arange(size)] * 2, indexing="ij"), -1)
    return np.repeat(grid[None], rows, axis=0).astype("float32")


def resample(images, crop, angle, flip):
    """The layer's resampling with given instead of random numbers."""
    size = images.shape[1]
    grid = (2 * np.arange(size, dtype="float32") + 1) / size - 1
    one = np.ones((1, 1, 1), "float32")
    rows, columns, inside = _inverse_affine(
        grid[None, :, None],
        grid[None, None, :],
        (*[np.float32(c) * one for c in crop], 1.0),
        np.float32(np.deg2rad(angle)) * one,
        np.float32(-1.0 if flip else 1.0) * one,
    )
    rows, columns = (np.asarray(c) for c in (rows, columns))
    sampled = _bilinear(
        keras.ops.convert_to_tensor(images),
        (rows + 1) * size / 2 - 0.5,
        (columns + 1) * size / 2 - 0.5,
    )
    return np.where(np.asarray(inside)[..., None], np.asarray(sampled), 0.0)


WHOLE = (0.0, 0.0, 1.0, 1.0)


def test_quarter_turn_and_flip_equal_numpy(rng):
    images = rng.random((1, 8, 8, 3)).astype("float32")
    np.testing.assert_allclose(
        resample(images, WHOLE, 0, flip=True), images[:, :, ::-1], atol=1e-5
    )
    # A positive angle turns clockwise.
    np.testing.assert_allclose(
        resample(images, WHOLE, 90, flip=False),
        np.rot90(images, -1, axes=(1, 2)),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        resample(images, WHOLE, 90, flip=True),
        np.rot90(images[:, :, ::-1], -1, axes=(1, 2)),
        atol=1e-5,
    )


def test_crop_enlarges_its_window():
    # The upper left quarter, twice as large.
    out = resample(ramp(1), (-0.5, -0.5, 0.5, 0.5), 0, flip=False)[0]
    expected = np.clip((np.arange(8) + 0.5) / 2 - 0.5, 0, None)
    np.testing.assert_allclose(out[:, 0, 0], expected, atol=1e-5)
    np.testing.assert_allclose(out[0, :, 1], expected, atol=1e-5)


def test_rotation_fills_with_black_also_inside_the_source():
    """What lies outside the crop is black, though the source has pixels."""
    images = np.ones((1, 16, 16, 1), "float32")
    out = resample(images, (0.0, 0.0, 0.5, 0.5), 45, flip=False)[0, :, :, 0]
    assert out[0, 0] == out[-1, -1] == 0.0
    assert out[8, 8] == 1.0


def test_inert_in_inference(rng):
    images = rng.random((3, 8, 8, 2)).astype("float32")
    layer = AffineAugmentation(0.5, 0.5, 45, seed=1)
    np.testing.assert_array_equal(np.asarray(layer(images)), images)


def test_every_image_gets_its_own_transformation():
    out = np.asarray(
        AffineAugmentation(0.5, 0.5, 45, seed=1)(ramp(), training=True)
    )
    assert out.shape == (4, 8, 8, 2)
    assert len({image.tobytes() for image in out}) == 4


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "mixed_bfloat16"])
def test_images_of_another_precision(rng, dtype):
    images = rng.random((2, 8, 8, 3)).astype("float32")
    layer = AffineAugmentation(scale=1.0, flip=1.0, rotation=0.0, dtype=dtype)
    for training, expected in ((True, images[:, :, ::-1]), (False, images)):
        found = layer(images, training=training)
        found_dtype = keras.backend.standardize_dtype(found.dtype)
        if keras.backend.backend() == "tensorflow" or dtype != "float64":
            assert found_dtype == layer.compute_dtype
        np.testing.assert_allclose(
            np.asarray(keras.ops.cast(found, "float32")), expected, atol=4e-3
        )


def test_the_seed_decides():
    first = AffineAugmentation(0.5, 0.5, 45, seed=1)
    second = AffineAugmentation(0.5, 0.5, 45, seed=1)
    one, two = (
        np.asarray(first(ramp(), training=True)),
        np.asarray(first(ramp(), training=True)),
    )
    np.testing.assert_array_equal(
        one, np.asarray(second(ramp(), training=True))
    )
    assert np.any(one != two)


def test_flip_probability_and_crop_area():
    """Statistics of many draws: flips, and the visible part of the image."""
    images = ramp(4000, 4)
    flipped = np.asarray(
        AffineAugmentation(flip=0.3, seed=0)(images, training=True)
    )
    is_flipped = flipped[:, 0, 0, 1] > 1.5
    assert is_flipped.mean() == pytest.approx(0.3, abs=0.03)
    crops = np.asarray(
        AffineAugmentation(scale=0.5, seed=0)(images, training=True)
    )
    # Steps between pixels shrink with the window's sides.
    height = crops[:, 2, 1, 0] - crops[:, 1, 1, 0]
    width = crops[:, 1, 2, 1] - crops[:, 1, 1, 1]
    area, ratio = height * width, width / height
    assert 0.45 < area.min() < 0.52 < 0.9 < area.max() <= 1.0 + 1e-5
    assert area.mean() == pytest.approx(0.74, abs=0.03)
    assert 0.74 < ratio.min() < 0.85 < 1.18 < ratio.max() < 1.35


def test_modes_agree(monkeypatch):
    """Compiled under XLA and jit too. (XLA draws other random numbers.)"""
    draws = np.random.default_rng(0).random((5, 4, 1, 1)).astype("float32")
    remaining = []

    def uniform(layer, batch, low, high):
        draw = low + (high - low) * remaining.pop()
        return keras.ops.convert_to_tensor(draw, dtype="float32")

    monkeypatch.setattr(AffineAugmentation, "_uniform", uniform)
    layer = AffineAugmentation(0.6, 0.5, 20)
    outputs = []
    for mode in execution.MODES:
        remaining[:] = [*draws, *draws]
        augment = execution.compiled(lambda x: layer(x, training=True), mode)
        outputs.append(augment(ramp()))
    for output in outputs:
        np.testing.assert_allclose(output, outputs[0], atol=1e-4)
    assert np.abs(outputs[0] - ramp()).max() > 1


def test_draws_compile(mode):
    """The layer's own random numbers, in every mode."""
    if execution.BACKEND == "jax" and mode == "jit":
        import jax

        layer = AffineAugmentation(0.6, 0.5, 20, seed=3)
        state = [v.value for v in layer.non_trainable_variables]
        augment = jax.jit(
            lambda s, x: layer.stateless_call([], s, x, training=True)
        )
        out, new_state = augment(state, ramp())
        assert np.any(np.asarray(new_state[0]) != np.asarray(state[0]))
    else:
        layer = AffineAugmentation(0.6, 0.5, 20, seed=3)
        augment = execution.compiled(lambda x: layer(x, training=True), mode)
        out = augment(ramp())
        assert np.any(augment(ramp()) != out)
    out = np.asarray(out)
    assert np.isfinite(out).all()
    assert 0 <= out.min() <= out.max() <= 7


@pytest.mark.parametrize(
    "arguments",
    [{"scale": 0.0}, {"scale": 1.1}, {"flip": 2.0}, {"rotation": -1.0}],
)
def test_bad_arguments(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"{name} must be in"):
        AffineAugmentation(**arguments)
