# SPDX-License-Identifier: Apache-2.0
"""The symmetries of a square against NumPy's own."""

import keras
import numpy as np
import pytest

from cac_tf.layers import RandomSymmetry
from cac_tf.layers.random_symmetry import apply_symmetry
from tests import execution


def in_numpy(image, which):
    if which & 1:
        image = image[:, ::-1]
    if which & 2:
        image = image[::-1]
    return image.transpose(1, 0, 2) if which & 4 else image


def test_each_symmetry(rng, mode):
    images = np.float32(rng.normal(size=(8, 5, 5, 2)))
    changed = execution.compiled(apply_symmetry, mode)(
        images, np.arange(8, dtype="int32")
    )
    expected = [in_numpy(image, i) for i, image in enumerate(images)]
    np.testing.assert_array_equal(changed, expected)


def test_they_are_four_turns_with_and_without_a_mirror(rng):
    image = np.float32(rng.normal(size=(4, 4, 1)))
    found = np.asarray(
        apply_symmetry(
            np.repeat(image[None], 8, 0), np.arange(8, dtype="int32")
        )
    )
    wanted = [np.rot90(m, k) for m in (image, image[:, ::-1]) for k in range(4)]
    as_bytes = [
        {np.ascontiguousarray(i).tobytes() for i in s} for s in (found, wanted)
    ]
    assert as_bytes[0] == as_bytes[1] and len(as_bytes[0]) == 8


def test_random_in_training_alone(rng):
    images = np.float32(rng.normal(size=(400, 3, 3, 1)))
    layer = RandomSymmetry(seed=1)
    changed, which = map(np.asarray, layer(images, training=True))
    assert np.bincount(which, minlength=8).min() > 20
    for row in range(40):
        np.testing.assert_array_equal(
            changed[row], in_numpy(images[row], which[row])
        )
    same, which = layer(images, training=False)
    np.testing.assert_array_equal(same, images)
    assert not np.asarray(which).any()
    again = RandomSymmetry.from_config(layer.get_config())
    np.testing.assert_array_equal(again(images, training=True)[0], changed)


def test_images_that_are_not_square():
    with pytest.raises(ValueError, match="Only square images"):
        RandomSymmetry()(keras.Input([3, 4, 1]))
    inputs = keras.Input([None, None, 1])
    model = keras.Model(inputs, RandomSymmetry()(inputs))
    for height in (1, 3):
        with pytest.raises(ValueError, match="Only square images"):
            model(np.ones((2, height, 4, 1), "float32"), training=True)
    images, _ = model(np.ones((2, 3, 4, 1), "float32"))
    assert images.shape == (2, 3, 4, 1)


def test_images_whose_size_is_left_open(rng):
    images = np.float32(rng.normal(size=(40, 3, 3, 1)))
    inputs = keras.Input([None, None, 1])
    model = keras.Model(inputs, RandomSymmetry(seed=1)(inputs))
    changed, which = map(np.asarray, model(images, training=True))
    for row in range(40):
        np.testing.assert_array_equal(
            changed[row], in_numpy(images[row], which[row])
        )
