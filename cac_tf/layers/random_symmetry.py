# SPDX-License-Identifier: Apache-2.0
"""Images turned and mirrored at random, for self-supervision."""

from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor

# The symmetries of a square: four turns, each with and without a mirror.
SYMMETRIES = 8


def apply_symmetry(images: Tensor, which: Tensor) -> Tensor:
    """Each image under one of the eight symmetries of a square.

    Symmetry 4 a + 2 b + c swaps rows and columns if a is 1, after reversing the
    rows if b is 1 and the columns if c is 1. 0 changes nothing.

    Args:
        images: (B, H, W, C), H = W.
        which: (B,) int32 in 0...7.

    Returns:
        (B, H, W, C).

    Example:

    >>> import numpy as np
    >>> image = np.float32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
    >>> turned = apply_symmetry(image, np.int32([5]))  # by a quarter
    >>> np.asarray(turned)[0, :, :, 0].tolist()
    [[2.0, 4.0], [1.0, 3.0]]
    """
    which = ops.reshape(which, (-1, 1, 1, 1))
    for bit, change in (
        (1, lambda x: ops.flip(x, axis=2)),
        (2, lambda x: ops.flip(x, axis=1)),
        (4, lambda x: ops.transpose(x, (0, 2, 1, 3))),
    ):
        is_changed = ops.equal(which // bit % 2, 1)
        images = ops.where(is_changed, change(images), images)
    return images


def _check_square(shape):
    # (Sizes may be open.)
    if len(shape) != 4 or (None not in shape[1:3] and shape[1] != shape[2]):
        raise ValueError(
            "Only square images, (batch, size, size, channels), have all "
            f"eight symmetries; got {tuple(shape)}. Set one image_size for "
            "both height and width."
        )


@keras.saving.register_keras_serializable(package="CacTf")
class RandomSymmetry(keras.layers.Layer):
    """Rotates and mirrors each image at random, and returns how.

    A network that must recognize which symmetry was applied learns richer
    features than the classes alone require (Perera et al., CVPR 2020).

    Args:
        seed: seed of the random numbers.
        **kwargs: passed to `keras.layers.Layer`.

    Call arguments:
        images: (B, H, W, C), H = W.
        training: whether to change the images; otherwise all have symmetry 0.

    Returns:
        (B, H, W, C) images, and (B,) int32 symmetries, see `apply_symmetry`.

    Raises:
        ValueError: images that are not square, if their sizes are known or they
            are to be changed.

    Example:

    >>> import numpy as np
    >>> images = np.ones((2, 4, 4, 1), "float32")
    >>> _, which = RandomSymmetry()(images, training=False)
    >>> np.asarray(which).tolist()
    [0, 0]
    """

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self._generator = keras.random.SeedGenerator(seed)

    def call(
        self, images: Tensor, training: bool = False
    ) -> tuple[Tensor, Tensor]:
        count = ops.shape(images)[0]
        if not training:
            return images, ops.zeros((count,), "int32")
        _check_square(images.shape)
        which = keras.random.randint(
            (count,), 0, SYMMETRIES, seed=self._generator
        )
        return apply_symmetry(images, which), which

    def compute_output_spec(
        self, images: Tensor, training: bool = False
    ) -> tuple[Any, Any]:
        _check_square(images.shape)
        return (
            keras.KerasTensor(images.shape, self.compute_dtype),
            keras.KerasTensor(images.shape[:1], "int32"),
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "seed": self.seed}
