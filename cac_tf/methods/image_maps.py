# SPDX-License-Identifier: Apache-2.0
"""The small maps that generators and decoders of images start from."""

from keras import layers

# Between an image and its smallest map.
_SHRINKS = 8


def smallest_map(image_shape):
    """(height, width) of the map that becomes an image (height, width, C).

    Example:

    >>> smallest_map((32, 32, 3)), smallest_map((13, 20, 3))
    ((4, 4), (2, 3))
    """
    return tuple(-(-size // _SHRINKS) for size in image_shape[:2])


def cropped(x, image_shape):
    """Images from a `smallest_map` doubled three times, cut to their size."""
    rest = [
        _SHRINKS * size - wanted
        for size, wanted in zip(
            smallest_map(image_shape), image_shape[:2], strict=True
        )
    ]
    if not any(rest):
        return x
    cropping = [(0, one) for one in rest]
    return layers.Cropping2D(cropping, dtype="float32", name="crop")(x)
