# SPDX-License-Identifier: Apache-2.0
"""From a drawing to an image like those of handwritten digits.

A network knows digits of one size, place and thickness: those that the makers
of its training images gave them. A drawing gets the same.
"""

from collections.abc import Sequence

import numpy as np
import PIL.Image
import PIL.ImageDraw
from scipy import ndimage

# A pixel is the mean of 4 x 4 black or white dots, as in scikit-learn's digits.
_DOTS = 4
_SCIKIT_SIZE = 8
# The share of white dots in scikit-learn's digits, whose lines were made
# thicker or thinner until each digit had about as many as the others.
_SCIKIT_INK = 0.306
# MNIST's images have 28 x 28 pixels, its digits fit into 20 x 20 of them.
_MNIST_SIZE, _MNIST_BOX = 28, 20
_SMALLEST_MNIST, _LARGEST_MNIST = 20, 32
# Lines in MNIST are about as wide as this share of a digit's longer side.
_PEN = 0.13
# Dots of a drawing's longer side, and points that a hand may draw.
_SIDE, _MOST_POINTS, _LARGEST_NUMBER = 320, 20_000, 1e6


def takes_drawings(image_shape: tuple[int | None, ...]) -> bool:
    """Whether images of a shape are of handwritten digits' size.

    Args:
        image_shape: shape of one image.

    Returns:
        True for square grey images of 8 pixels, the size of scikit-learn's
        digits, and of 20 to 32, those of MNIST, also where it is resampled.

    Example:

    >>> takes_drawings((8, 8, 1)), takes_drawings((32, 32, 3))
    (True, False)
    """
    if len(image_shape) != 3 or image_shape[2] != 1:
        return False
    height, width, _ = image_shape
    return (
        height is not None
        and height == width
        and (
            height == _SCIKIT_SIZE
            or _SMALLEST_MNIST <= height <= _LARGEST_MNIST
        )
    )


def ink_of_strokes(
    strokes: Sequence[Sequence[tuple[float, float]]],
) -> np.ndarray:
    """Draws strokes, with a pen that fits the size of the drawing.

    Args:
        strokes: list of strokes, each a list of points (x, y), y downwards,
            on any scale up to a million.

    Returns:
        (H, W) bool, where something is drawn.

    Raises:
        ValueError: strokes that are not lists of points, or nothing is drawn.

    Example:

    >>> ink = ink_of_strokes([[(0, 0), (0, 9)], [(3, 4)]])
    >>> ink.shape, round(float(ink.mean()), 2)
    ((363, 150), 0.3)
    """
    try:
        points = [np.asarray(stroke, "float64") for stroke in strokes]
    except (TypeError, ValueError):
        points = [np.full((1, 2), np.nan)]
    points = [stroke for stroke in points if stroke.size]
    if not points:
        raise ValueError("Nothing has been drawn.")
    if (
        any(
            stroke.ndim != 2
            or stroke.shape[1] != 2
            or not (np.abs(stroke) <= _LARGEST_NUMBER).all()
            for stroke in points
        )
        or sum(map(len, points)) > _MOST_POINTS
    ):
        raise ValueError(
            "A drawing must be a list of strokes, each a list of points (x, "
            f"y), with at most {_MOST_POINTS:,} points in total."
        )
    every = np.concatenate(points)
    start, extent = every.min(axis=0), np.ptp(every, axis=0)
    # A dot has none.
    scale = _SIDE / max(extent.max(), 1 / _LARGEST_NUMBER)
    pen = _PEN * _SIDE
    width, height = np.ceil(scale * extent + pen).astype(int) + 1
    picture = PIL.Image.new("1", (int(width), int(height)))
    draw = PIL.ImageDraw.Draw(picture)
    for stroke in points:
        placed = scale * (stroke - start) + pen / 2
        draw.line(list(map(tuple, placed)), 1, round(pen))
        # Round ends and corners.
        for x, y in placed:
            draw.circle((x, y), pen / 2, 1)
    return np.asarray(picture)


def image_of_drawing(ink: np.ndarray, size: int) -> np.ndarray:
    """The image of a drawing, made like the digits of its size.

    Of 8 pixels, as NIST did for scikit-learn's digits: the drawing is turned
    upright, fills 32 dots of height and at most 20 of width, and its lines get
    the usual thickness. Of another size, as for MNIST: it is scaled to fit into
    20/28 of the image. In both, its center of mass comes into the middle, as
    far as the drawing stays within the image.

    Args:
        ink: (H, W) bool, where something is drawn.
        size: of the image, in pixels.

    Returns:
        (size, size, 1) uint8, white on black.

    Raises:
        ValueError: nothing is drawn.

    Example:

    >>> ink = np.zeros((100, 100), bool)
    >>> ink[20:80, 40:50] = True
    >>> image_of_drawing(ink, 28)[..., 0].any(axis=1).sum()
    np.int64(20)
    """
    ink = np.asarray(ink, bool)
    if not ink.any():
        raise ValueError("Nothing has been drawn.")
    dots = _DOTS * size
    if size == _SCIKIT_SIZE:
        ink = _upright(_cropped(ink))
        height, width = ink.shape
        # As NIST did: as high as the image, and 5/8 of that wide at most.
        scale = dots / height
        ink = _scaled(ink, scale, min(scale, 5 / 8 * dots / width))
        ink = _with_share(
            _placed(ink, dots, (dots - 1) / 2, step=1), _SCIKIT_INK
        )
    else:
        ink = _cropped(ink)
        scale = dots * _MNIST_BOX / _MNIST_SIZE / max(ink.shape)
        # MNIST's have it at pixel 14, counted from 0, moved by whole pixels.
        middle = dots / 2 + (_DOTS - 1) / 2
        ink = _placed(_scaled(ink, scale, scale), dots, middle, step=_DOTS)
    blocks = ink.reshape(size, _DOTS, size, _DOTS).mean(axis=(1, 3))
    return np.rint(255 * blocks).astype("uint8")[..., np.newaxis]


def _cropped(ink):
    rows, columns = ndimage.find_objects(ink.astype("uint8"))[0]
    return ink[rows, columns]


def _upright(ink):
    """Sheared so that the middles of its rows do not lean to one side."""
    rows, columns = np.nonzero(ink)
    down = rows - rows.mean()
    if not down.any():
        return ink
    # At most 45 degrees: what leans more was meant to.
    lean = np.clip((down @ columns) / (down @ down), -1.0, 1.0)
    height = len(ink)
    room = int(np.ceil(abs(lean) * height))
    sheared = ndimage.affine_transform(
        np.pad(ink, ((0, 0), (room, room))).astype("float32"),
        [[1.0, 0.0], [lean, 1.0]],
        offset=[0.0, -lean * (height - 1) / 2],
        order=1,
    )
    return _cropped(sheared >= 0.5)


def _scaled(ink, by_height, by_width):
    height, width = ink.shape
    size = (max(1, round(by_width * width)), max(1, round(by_height * height)))
    grey = PIL.Image.fromarray(np.uint8(255 * ink))
    scaled = np.asarray(grey.resize(size, PIL.Image.Resampling.BOX)) > 127
    # A thin line that shrinks may vanish everywhere.
    return scaled if scaled.any() else np.ones_like(scaled)


def _placed(ink, size, middle, step):
    """Its center of mass in the middle of a square, but all of it inside."""
    frame = np.zeros((size, size), bool)
    where = []
    for length, center in zip(
        ink.shape, ndimage.center_of_mass(ink), strict=True
    ):
        start = step * round((middle - center) / step)
        start = min(max(start, 0), size - length)
        where.append(slice(start, start + length))
    frame[tuple(where)] = ink
    return frame


def _with_share(ink, share):
    """Lines made thicker or thinner until a share of all dots is ink."""
    distance = ndimage.distance_transform_edt(
        ~ink
    ) - ndimage.distance_transform_edt(ink)
    nearest = np.argsort(distance, axis=None, kind="stable")
    wanted = np.zeros(ink.size, bool)
    wanted[nearest[: round(share * ink.size)]] = True
    return wanted.reshape(ink.shape)
