# SPDX-License-Identifier: Apache-2.0
"""Mean and standard deviation of images, which normalization needs."""

from typing import Any

import numpy as np

_IMAGES_PER_PART = 1024


def channel_statistics(images: Any) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel on the scale of [0, 1].

    Args:
        images: (n, H, W, C) array with values in 0...255, or an object whose
            slices are such arrays, or that knows its `channel_sums()`: those
            of the values and of their squares by channel, and how many values
            each channel has.

    Returns:
        Two lists with C floats. A constant channel gets the deviation 1, so
        that it normalizes to 0 and not to NaN.

    Raises:
        ValueError: there are no images.

    Example:

    >>> import numpy as np
    >>> images = np.array([0, 255], "uint8").reshape(2, 1, 1, 1)
    >>> channel_statistics(images)
    ([0.5], [0.5])
    """
    if len(images) == 0:
        raise ValueError("Statistics need at least one image.")
    if hasattr(images, "channel_sums"):
        total, squares, count = images.channel_sums()
    else:
        total, squares, count = _channel_sums(images)
    mean = total / count
    variance = squares / count - np.square(mean)
    # The variance of a constant channel is only rounding.
    is_constant = variance <= 1e-12 * squares / count
    std = np.where(is_constant, 255.0, np.sqrt(np.maximum(variance, 0.0)))
    return (mean / 255.0).tolist(), (std / 255.0).tolist()


def _channel_sums(images):
    # In parts, because float64 takes eight times the memory of bytes. Sums of
    # squared bytes are whole numbers, which it keeps exactly.
    total, squares, count = 0.0, 0.0, 0
    for start in range(0, len(images), _IMAGES_PER_PART):
        part = np.asarray(images[start : start + _IMAGES_PER_PART], "float64")
        part = part.reshape(-1, part.shape[-1])
        total = total + part.sum(axis=0)
        squares = squares + np.square(part).sum(axis=0)
        count += len(part)
    return total, squares, count
