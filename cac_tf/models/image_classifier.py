# SPDX-License-Identifier: Apache-2.0
"""A classifier of images, put together from its parts."""

import typing
from collections.abc import Sequence
from typing import Any

import keras
from numpy.typing import ArrayLike

from cac_tf.hyperparameters import INTERPOLATIONS
from cac_tf.layers.affine_augmentation import AffineAugmentation
from cac_tf.layers.image_preprocessing import ChannelNormalization
from cac_tf.layers.image_preprocessing import ImagePreprocessing
from cac_tf.models.backbone_checks import by_name


class ImageParts(typing.NamedTuple):
    """The layers that an image passes, in this order.

    Example:

    >>> network = keras.Sequential([
    ...     keras.Input([8, 8, 1]), keras.layers.Flatten(),
    ...     keras.layers.Dense(3)])
    >>> parts = image_parts((8, 8, 1), [0.5], [0.25], network)
    >>> parts.classifier().output_shape
    (None, 3)
    """

    channels: int
    prepare: keras.Layer  # images of 0...255 to one size, in [0, 1]
    augment: keras.Layer | None  # in training only
    normalize: keras.Layer
    network: keras.Model

    def pixels(self, images: Any, training: bool = False) -> Any:
        """(B, H, W, C) in [0, 1], augmented in training."""
        pixels = self.prepare(images)
        if self.augment is None:
            return pixels
        return self.augment(pixels, training=training)

    def classifier(self) -> keras.Model:
        """All of them as a functional Keras model, of images of any size."""
        images = keras.Input((None, None, self.channels), name="images")
        # (No argument: each call of the model says whether it is training.)
        x = self.prepare(images)
        if self.augment is not None:
            x = self.augment(x)
        outputs = self.network(self.normalize(x))
        if isinstance(outputs, dict):
            outputs = by_name(outputs, self.network.name)
        return keras.Model(images, outputs, name="classifier")


def image_parts(
    image_shape: Sequence[int],
    mean: ArrayLike,
    std: ArrayLike,
    network: keras.Model,
    augment: keras.Layer | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> ImageParts:
    """The parts of a classifier of images of 0...255.

    Args:
        image_shape: (height, width, channels) that the network takes.
        mean, std: of each channel, for images in [0, 1].
        network: Keras model of normalized images.
        augment: layer that heeds the argument `training`, on images in [0, 1].
        interpolation: as of `ImagePreprocessing`.
    """
    height, width, channels = image_shape
    return ImageParts(
        channels,
        ImagePreprocessing(height, width, interpolation, name="prepare"),
        augment,
        ChannelNormalization(mean, std, name="normalization"),
        network,
    )


def of_raw_images(
    backbone: keras.Model,
    image_shape: Sequence[int],
    augment: keras.Layer | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> keras.Model:
    """A pretrained network behind what brings images to the size of the data.

    Args:
        backbone: of `pretrained_backbone`, (B, H, W, C) pixels of 0...255.
        image_shape: (height, width, channels) of the data.
        augment, interpolation: as of `image_parts`.

    Returns:
        Keras model of images of any size, 0...255.

    Example:

    >>> backbone = keras.Sequential([
    ...     keras.Input([None, None, 1]), keras.layers.GlobalMaxPooling2D()])
    >>> raw = of_raw_images(backbone, (8, 8, 1))
    >>> round(float(raw(255 * keras.ops.ones((1, 20, 30, 1)))[0, 0]), 3)
    255.0
    """
    height, width, channels = image_shape
    parts = ImageParts(
        channels,
        ImagePreprocessing(height, width, interpolation, name="prepare"),
        augment,
        keras.layers.Rescaling(255.0, dtype="float32", name="pixels"),
        backbone,
    )
    return parts.classifier()


def share_of_mirrored(classifier: keras.Model) -> float | None:
    """The share of training images that a classifier mirrors at random.

    None where it has no augmentation of ours: it is then not known.
    """
    for layer in classifier.layers:
        if isinstance(layer, AffineAugmentation):
            return layer.flip
    return None
