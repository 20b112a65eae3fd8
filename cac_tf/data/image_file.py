# SPDX-License-Identifier: Apache-2.0
"""From an image file to pixels of one size and color mode."""

import functools
import io
import os

import numpy as np
import PIL.Image
from PIL import BmpImagePlugin
from PIL import JpegImagePlugin
from PIL import PngImagePlugin
from PIL import WebPImagePlugin

from cac_tf.data.image_formats import MAX_PIXELS
from cac_tf.data.image_formats import NAMES
from cac_tf.data.image_formats import format_of
from cac_tf.data.image_formats import orientation_of
from cac_tf.data.regular_file import opened
from cac_tf.hyperparameters import INTERPOLATIONS

_END_OF_PNG = b"\0\0\0\0IEND\xaeB`\x82"
# Not `PIL.Image.open`: it refuses large images before it tells their size, by
# a limit that holds for the whole process, and warns of smaller ones.
_DECODERS = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
}
_MODES = {1: "L", 3: "RGB"}
_KINDS = {
    "alpha": "with an alpha channel",
    "L": "in grayscale",
    "1": "in grayscale",
}
_OTHER_MODE, _OTHER_SIZE = "of another color mode", "of another size"
# All that an image that had to be converted can be.
CONVERSIONS = (*dict.fromkeys(_KINDS.values()), _OTHER_MODE, _OTHER_SIZE)
# By the orientation that EXIF says.
_UPRIGHT = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}


def read_image(
    source, image_size=None, channels=3, interpolation=INTERPOLATIONS[0]
):
    """Decodes an image of one of `image_formats`.

    It is turned as its EXIF says. Of 16 bits the first 8 are kept, an alpha
    channel is dropped, and of several frames the first is taken (a WebP that
    has several is not read). A served model does the same.

    Args:
        source: path of the file, or its bytes.
        image_size: height and width to resample to (antialiased), a number or
            two; None keeps the image's own.
        channels: 3 for RGB, 1 for grey.
        interpolation: of `INTERPOLATIONS`.

    Returns:
        (H, W, channels) uint8 array, and a list that says what had to be
        converted.

    Raises:
        ValueError: this is no image that is read; the message says what it is.
        OSError: the system does not read the file.

    Example:

    >>> read_image(b"GIF89a")
    Traceback (most recent call last):
    ValueError: not a JPEG, PNG, WebP or BMP image
    """
    if not isinstance(source, bytes):
        with opened(source) as file:
            source = file.read()
    format_ = format_of(source)
    if format_ is None:
        raise ValueError(_of_another_format(source))
    image = _opened(source, format_.name)
    if image.mode.startswith("I"):
        # Pillow would clip the 16 bits of a PNG at 255.
        high_byte = np.asarray(image) >> 8
        image = PIL.Image.fromarray(high_byte.astype("uint8"))
    turn = _UPRIGHT.get(orientation_of(source, format_.blocks))
    if turn is not None:
        image = image.transpose(turn)
    return _converted(image, image_size, channels, interpolation)


def is_name_of_image(name):
    """Whether a file's name ends as that of an image, read or not.

    Example:

    >>> is_name_of_image("cats/1.JPG"), is_name_of_image("a.tiff")
    (True, True)
    >>> is_name_of_image("A picture.")
    False
    """
    return os.path.splitext(name)[1].lower() in _endings_of_images()


@functools.cache
def _endings_of_images():
    # (Pillow also knows films and tables.)
    formats = PIL.Image.registered_extensions().items()
    kinds = {end: PIL.Image.MIME.get(name, "") for end, name in formats}
    found = {end for end, kind in kinds.items() if kind.startswith("image/")}
    return found | {".avif", ".heic", ".heif", ".jxl"}


def problem_of(content):
    """Why the bytes of a file are not read as an image, or "" if they are.

    Example:

    >>> problem_of(b"BM and no header")
    'a BMP image that is compressed or does not have 8, 24 or 32 bits per pixel'
    """
    try:
        read_image(content)
    except ValueError as error:
        return str(error)
    return ""


def _opened(content, name):
    # Pillow does without, but no server does.
    if name == "PNG" and _END_OF_PNG not in content:
        raise ValueError("a damaged PNG image")
    try:
        image = _DECODERS[name](io.BytesIO(content))
        if image.width * image.height <= MAX_PIXELS:
            image.load()
            return image
    except MemoryError:
        raise  # Says nothing of the image.
    except Exception as error:  # Pillow's decoders raise of any kind.
        raise ValueError(f"a damaged {name} image") from error
    raise ValueError(
        f"an image of {image.width:,} x {image.height:,} pixels; the limit is "
        f"{MAX_PIXELS:,}, or max_image_pixels for an exported model"
    )


def _of_another_format(content):
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            return f"an image in {image.format} format, not {NAMES}"
    except MemoryError:
        raise
    except Exception:
        return f"not a {NAMES} image"


def as_pixels(
    array, image_size=None, channels=3, interpolation=INTERPOLATIONS[0]
):
    """The pixels of one image as `read_image` would give them.

    Args:
        array: (H, W), (H, W, 1) or (H, W, 3) uint8 array.
        image_size, channels, interpolation: as in `read_image`.

    Returns:
        As `read_image`.
    """
    image = _image_of(array)
    return _converted(image, image_size, channels, interpolation)


def png_bytes(array):
    """A uint8 array, as in `as_pixels`, as the bytes of a PNG file.

    Example:

    >>> pixels = np.arange(12, dtype="uint8").reshape(2, 2, 3)
    >>> bool((read_image(png_bytes(pixels))[0] == pixels).all())
    True
    """
    image = _image_of(array)
    file = io.BytesIO()
    image.save(file, format="png")
    return file.getvalue()


def _image_of(array):
    return PIL.Image.fromarray(array.squeeze(-1) if _is_grey(array) else array)


def _is_grey(array):
    return array.ndim == 3 and array.shape[-1] == 1


def resized(image, size, interpolation):
    """A `PIL.Image` of another size, (width, height).

    Example:

    >>> image = PIL.Image.fromarray(np.eye(2, dtype="uint8") * 200)
    >>> np.asarray(resized(image, (4, 2), "bicubic"))[0]
    array([218, 159,  41,   0], dtype=uint8)
    """
    way = PIL.Image.Resampling[interpolation.upper()]
    if interpolation == INTERPOLATIONS[0]:
        return image.resize(size, way)
    # Between its two passes, Pillow would cut off what overshoots; of floats,
    # it does not.
    bands = [
        np.asarray(band.convert("F").resize(size, way)).round().clip(0, 255)
        for band in image.split()
    ]
    return PIL.Image.merge(
        image.mode,
        [PIL.Image.fromarray(band.astype("uint8")) for band in bands],
    )


def _converted(image, image_size, channels, interpolation):
    kinds = []
    if image.mode != _MODES[channels]:
        has_alpha = image.mode in ("RGBA", "LA", "PA")
        kind = "alpha" if has_alpha else image.mode
        kinds.append(_KINDS.get(kind, _OTHER_MODE))
        image = image.convert(_MODES[channels])
    height, width = np.broadcast_to(
        image.size[::-1] if image_size is None else image_size, 2
    ).tolist()
    if image.size != (width, height):
        kinds.append(_OTHER_SIZE)
        image = resized(image, (width, height), interpolation)
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels), kinds
