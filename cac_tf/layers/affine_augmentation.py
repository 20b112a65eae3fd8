# SPDX-License-Identifier: Apache-2.0
"""Random crop, flip and rotation of images, as one resampling."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor


def _inverse_affine(rows, columns, crop, angle, flip):
    """Where in the source image the pixels of the output image come from.

    Output = rotation(flip(resized crop(source))), so coordinates go through
    the inverses in the opposite order. All units are such that the image spans
    [-1, 1]; `crop` holds the center and half extent of the window, (B, 1, 1)
    each. Returns source rows and columns, and whether the point lies in the
    window: points that the rotation brings in from outside are filled.
    """
    center_row, center_column, half_height, half_width, aspect = crop
    # Angles are correct only if a unit has the same length on both axes.
    x, y = columns * aspect, rows
    cos, sin = ops.cos(angle), ops.sin(angle)
    x, y = (cos * x + sin * y) / aspect, cos * y - sin * x
    inside = ops.logical_and(ops.abs(x) <= 1.0, ops.abs(y) <= 1.0)
    x = x * flip
    return center_row + half_height * y, center_column + half_width * x, inside


@keras.saving.register_keras_serializable(package="CacTf")
class AffineAugmentation(keras.layers.Layer):
    """Random resized crop, horizontal flip and rotation of each image.

    The three form one affine map, so every image is resampled only once
    (bilinear), with gathers that XLA and JAX jit can compile. Does nothing
    unless `training=True`. Images must be in [0, 1], before normalization:
    after a rotation, pixels outside the crop become black (0).

    Args:
        scale: smallest share of the image's area that a crop may cover, in (0,
            1]; crops have the area `uniform(scale, 1)` and the aspect ratio
            `exp(uniform(log 3/4, log 4/3))`, clipped to the image, at a
            uniformly random position. 1 leaves the image whole.
        flip: probability of a horizontal flip, in [0, 1].
        rotation: largest angle in degrees; angles are uniform in [-rotation,
            rotation].
        seed: seed of the random numbers.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        images: (B, H, W, C).
        training: whether to augment.

    Returns:
        (B, H, W, C) in the layer's dtype, float32 by default.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np, cac_tf
    >>> layer = cac_tf.layers.AffineAugmentation(flip=1.0)
    >>> images = np.float32([[0.25, 0.75]]).reshape(1, 1, 2, 1)
    >>> np.asarray(layer(images, training=True)).ravel()
    array([0.75, 0.25], dtype=float32)
    >>> np.asarray(layer(images, training=False)).ravel()
    array([0.25, 0.75], dtype=float32)
    """

    def __init__(
        self,
        scale: float = 1.0,
        flip: float = 0.0,
        rotation: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        if not 0.0 < scale <= 1.0:
            raise ValueError(f"scale must be in (0, 1]; got {scale!r}.")
        if not 0.0 <= flip <= 1.0:
            raise ValueError(f"flip must be in [0, 1]; got {flip!r}.")
        if not 0.0 <= rotation <= 180.0:
            raise ValueError(f"rotation must be in [0, 180]; got {rotation!r}.")
        self.scale = float(scale)
        self.flip = float(flip)
        self.rotation = float(rotation)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, images: Tensor, training: bool | None = False) -> Tensor:
        if training:
            images = self._augment(ops.cast(images, "float32"))
        return ops.cast(images, self.compute_dtype)

    def _uniform(self, batch, low, high):
        return keras.random.uniform(
            (batch, 1, 1), low, high, "float32", seed=self.seed_generator
        )

    def _random_crop(self, batch, height, width):
        area = self._uniform(batch, self.scale, 1.0)
        # This is the ratio in pixels; in units of the image's sides, the
        # window of a non-square image has another ratio.
        ratio = ops.exp(self._uniform(batch, np.log(3 / 4), np.log(4 / 3)))
        ratio = ratio * (height / width)
        if self.scale == 1.0:
            ratio = ops.ones_like(ratio)
        half_width = ops.minimum(ops.sqrt(area * ratio), 1.0)
        half_height = ops.minimum(ops.sqrt(area / ratio), 1.0)
        center_row = self._uniform(batch, -1.0, 1.0) * (1.0 - half_height)
        center_column = self._uniform(batch, -1.0, 1.0) * (1.0 - half_width)
        return center_row, center_column, half_height, half_width

    def _augment(self, images):
        batch = ops.shape(images)[0]
        height, width = images.shape[1:3]
        if height is None or width is None:
            raise ValueError(
                "AffineAugmentation needs images of a fixed size; got "
                f"{tuple(images.shape)}. ImagePreprocessing resizes them."
            )
        crop = self._random_crop(batch, height, width)
        angle = self._uniform(batch, -self.rotation, self.rotation)
        angle = angle * (np.pi / 180.0)
        flip = ops.where(self._uniform(batch, 0.0, 1.0) < self.flip, -1.0, 1.0)
        # Pixel centers of the output, (1, H, 1) and (1, 1, W).
        rows = (2.0 * np.arange(height, dtype="float32") + 1.0) / height - 1.0
        columns = (2.0 * np.arange(width, dtype="float32") + 1.0) / width - 1.0
        rows, columns, inside = _inverse_affine(
            ops.convert_to_tensor(rows[None, :, None]),
            ops.convert_to_tensor(columns[None, None, :]),
            (*crop, width / height),
            angle,
            flip,
        )
        rows = (rows + 1.0) * (height / 2) - 0.5
        columns = (columns + 1.0) * (width / 2) - 0.5
        sampled = _bilinear(images, rows, columns)
        return ops.where(ops.expand_dims(inside, -1), sampled, 0.0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "scale": self.scale,
            "flip": self.flip,
            "rotation": self.rotation,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable(package="CacTf")
class AffineView(AffineAugmentation):
    """One of the maps of `AffineAugmentation`, of all images alike, always.

    Args:
        scale, flip, rotation: as of `AffineAugmentation`.
        seed: what the map is drawn by.
        **kwargs: passed to `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((2, 5, 5, 1), "float32")
    >>> view = AffineView(scale=0.5, flip=0.5, seed=1)
    >>> both = np.asarray(view(images))
    >>> bool((both == np.asarray(view(images))).all())
    True
    >>> bool((both[1] == np.asarray(view(images[1:]))[0]).all())
    True
    """

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        self._rng = np.random.default_rng(self.seed)
        images = self._augment(ops.cast(images, "float32"))
        return ops.cast(images, self.compute_dtype)

    def _uniform(self, batch, low, high):
        value = np.float32(self._rng.uniform(low, high))
        return ops.full((1, 1, 1), value, "float32")


def _bilinear(images, rows, columns):
    """Samples (B, H, W, C) images at (B, H', W') positions, edges repeated.

    It does not use `keras.ops.image.map_coordinates`, which also interpolates
    over the batch and channel axes: 16 gathers for 4 axes.
    """
    batch = ops.shape(images)[0]
    height, width, channels = images.shape[1:]
    rows = ops.clip(rows, 0.0, height - 1.0)
    columns = ops.clip(columns, 0.0, width - 1.0)
    top, left = ops.floor(rows), ops.floor(columns)
    down = ops.expand_dims(rows - top, -1)
    right = ops.expand_dims(columns - left, -1)
    top, left = ops.cast(top, "int32"), ops.cast(left, "int32")
    bottom = ops.minimum(top + 1, height - 1)
    after = ops.minimum(left + 1, width - 1)
    flat = ops.reshape(images, (-1, channels))
    start = ops.reshape(
        ops.arange(batch, dtype="int32") * (height * width), (-1, 1, 1)
    )

    def at(row, column):
        return ops.take(flat, start + row * width + column, axis=0)

    upper = at(top, left) * (1.0 - right) + at(top, after) * right
    lower = at(bottom, left) * (1.0 - right) + at(bottom, after) * right
    return upper * (1.0 - down) + lower * down
