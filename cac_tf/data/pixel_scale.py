# SPDX-License-Identifier: Apache-2.0
"""One scale for the pixels of an experiment: 0 is black and 255 is white."""

import numpy as np

WHITE = 255
# Share of the range by which rounding may leave it.
_ROUNDING = 1e-3
# A brightest training pixel below this share of white is worth a note.
_DARK = 0.5
_HOW_TO_SAY = (
    "or state which value is white (the entry `white` of an .npz file, the "
    "argument of make_open_set_dataset)"
)


def on_one_scale(parts, white=None):
    """Images of all parts of an experiment with values 0...255.

    The first part, the training images, decides what white is: 255, or 1 where
    no value is above 1, or 65535 where whole numbers are above 255. The other
    parts must agree. Images that are no array are decoded when they are used,
    and have 255.

    Args:
        parts: dict of images or None: arrays of numbers or bool, or objects
            whose slices are such arrays.
        white: the value of a white pixel, if it is known.

    Returns:
        The dict, with arrays as they were or scaled, then uint8 where values
        were 0 and 1 and else float32; and a tuple of notes on what was done.

    Raises:
        ValueError: values that cannot be pixels: no numbers, NaN or infinite,
            below 0, above white; values from which white cannot be told; or
            parts that disagree.

    Example:

    >>> images = np.float32([0.0, 0.2, 1.0]).reshape(3, 1, 1, 1)
    >>> parts, notes = on_one_scale({"train": images})
    >>> parts["train"].ravel()
    array([  0.,  51., 255.], dtype=float32)
    >>> notes[0]
    'pixel values of 0...1 were scaled to 0...255, the range that the model \
and its exported versions expect'
    """
    if white is not None and not (np.isfinite(white) and white > 0):
        raise ValueError(f"white must be a number above 0; got {white!r}.")
    given = {n: x for n, x in parts.items() if x is not None and len(x)}
    largest = {
        name: _largest(images, name)
        for name, images in given.items()
        if isinstance(images, np.ndarray)
    }
    is_said = white is not None
    own = {
        name: _white(given[name].dtype, largest[name], name)
        if name in largest and not is_said
        else None
        for name in given
    }
    first = next(iter(parts))
    if not is_said:
        white = own.get(first) or WHITE
    for name in given:
        found = own[name] if name in largest else WHITE
        if found not in (None, white):
            raise ValueError(
                f"The parts have different values for white: {white} in "
                f"{first}, {found} in {name}. Bring all parts to one scale, "
                f"{_HOW_TO_SAY}."
            )
        if largest.get(name, 0) > white * (1 + _ROUNDING):
            raise ValueError(
                f"Pixel values of {name} go up to {largest[name]:g}, above "
                f"the value of white ({white:g})."
            )
    notes = []
    if white != WHITE:
        notes.append(
            f"pixel values of 0...{white:g} were scaled to 0...{WHITE}, the "
            "range that the model and its exported versions expect"
        )
    if not is_said and largest.get(first, white) < _DARK * white:
        notes.append(
            f"the largest pixel value in {first} is {largest[first]:g}, and "
            f"{white} is assumed to be white; if it is not, scale the images, "
            f"{_HOW_TO_SAY}"
        )
    scaled = {
        name: _scaled(images, white) if name in largest else images
        for name, images in given.items()
    }
    return {**parts, **scaled}, tuple(notes)


def _largest(images, name):
    """The largest value, after a look at all of them."""
    if images.dtype.kind not in "buif":
        raise ValueError(
            f"The images of {name} must be numbers; got {images.dtype}."
        )
    largest = float(images.max())
    if images.dtype.kind in "bu":
        return largest
    smallest = float(images.min())
    # NaN makes both of them NaN.
    if not (np.isfinite(largest) and np.isfinite(smallest)):
        rows = np.flatnonzero(
            ~np.isfinite(images.reshape(len(images), -1)).all(axis=1)
        )
        raise ValueError(
            f"The images of {name} contain NaN or infinity, in rows "
            f"{rows[:10].tolist()}."
        )
    if smallest < -_ROUNDING * max(largest, 1):
        raise ValueError(
            f"Pixel values of {name} go down to {smallest:g}, below 0. Models "
            "expect raw pixels and normalize them internally: provide the "
            "images without normalization."
        )
    return largest


def _white(dtype, largest, name):
    """What is white, from the largest value; None where all is black."""
    if dtype.kind == "b":
        return 1
    if largest <= 0:
        return None
    if largest <= 1 + (_ROUNDING if dtype.kind == "f" else 0):
        return 1
    if dtype.kind == "f" and largest < 2:
        raise ValueError(
            f"Pixel values of {name} go up to {largest:g}, which is neither "
            "0...1 nor 0...255. Scale them (or clip them at 1), "
            f"{_HOW_TO_SAY}."
        )
    if largest <= WHITE * (1 + (_ROUNDING if dtype.kind == "f" else 0)):
        return WHITE
    if dtype.kind in "ui" and largest <= 65535:
        return 65535
    raise ValueError(
        f"Pixel values of {name} go up to {largest:g}. They must be numbers "
        "in 0...1 or 0...255, or integers in 0...65535. Scale them, "
        f"{_HOW_TO_SAY}."
    )


def _scaled(images, white):
    if images.dtype.kind == "b":
        images = images.astype("uint8")
    if white == WHITE:
        return images
    if white == 1 and images.dtype.kind in "ui":
        return images.astype("uint8") * np.uint8(WHITE)
    return np.multiply(images, WHITE / white, dtype="float32")
