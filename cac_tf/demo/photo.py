# SPDX-License-Identifier: Apache-2.0
"""From a photo's file to an image as a model takes it."""

from typing import Any

import numpy as np
import PIL.Image

from cac_tf.data.image_file import read_image
from cac_tf.data.image_file import resized
from cac_tf.hyperparameters import INTERPOLATIONS


def check_takes_photos(image_shape: tuple[int | None, ...]) -> None:
    """Raises ValueError for a model that takes no grey or color images.

    Example:

    >>> check_takes_photos((32, 32, 3))
    >>> check_takes_photos((20,))
    Traceback (most recent call last):
    ValueError: The model expects inputs of shape (20,); this page can only \
show images with 1 or 3 channels.
    """
    if len(image_shape) != 3 or image_shape[-1] not in (1, 3):
        raise ValueError(
            f"The model expects inputs of shape {tuple(image_shape)}; this "
            "page can only show images with 1 or 3 channels."
        )


def image_of_photo(
    source: Any,
    image_shape: tuple[int, ...],
    interpolation: str = INTERPOLATIONS[0],
) -> np.ndarray:
    """Decodes a photo as those of a folder are decoded for training.

    Args:
        source: path of the file, or its bytes.
        image_shape: (height, width, channels) that the model takes; a height
            or width of None leaves the photo's own.
        interpolation: as of `read_image`.

    Returns:
        (height, width, channels) uint8 array.

    Raises:
        ValueError, OSError: as `read_image`.

    Example:

    >>> import io
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (40, 30), (255, 0, 0)).save(file, "PNG")
    >>> image_of_photo(file.getvalue(), (2, 2, 1))[..., 0]
    array([[76, 76],
           [76, 76]], dtype=uint8)
    """
    height, width, channels = image_shape
    pixels, _ = read_image(source, channels=channels)
    size = (width or pixels.shape[1], height or pixels.shape[0])
    image = PIL.Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels)
    found = np.asarray(resized(image, size, interpolation))
    return found.reshape(size[1], size[0], channels)
