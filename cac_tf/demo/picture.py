# SPDX-License-Identifier: Apache-2.0
"""From an image as a model takes it to a picture on the page."""

import numpy as np
import PIL.Image

# Smaller images are shown larger, with visible pixels.
_SMALLEST_SHOWN = 128


def shown(image):
    """An image as a picture that is large enough to be seen.

    Args:
        image: (H, W, C) array of values 0...255.

    Returns:
        `PIL.Image.Image`.

    Example:

    >>> shown(np.zeros((8, 8, 1), "uint8")).size
    (128, 128)
    """
    pixels = np.rint(np.asarray(image)).astype("uint8")
    picture = PIL.Image.fromarray(
        pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels
    )
    factor = -(-_SMALLEST_SHOWN // max(picture.size))
    size = tuple(factor * side for side in picture.size)
    return picture.resize(size, PIL.Image.Resampling.NEAREST)
