# SPDX-License-Identifier: Apache-2.0
"""From an image file of any kind to pixels of one size and color mode."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps

_MODES = {1: "L", 3: "RGB"}
_KINDS = {
    "alpha": "with an alpha channel",
    "L": "in grey",
    "1": "in grey",
}
_OTHER_MODE, _OTHER_SIZE = "of another color mode", "of another size"
# Formats of which Pillow reads the 16 bits of a pixel into 32.
_16_BITS_IN_32 = ("PNG", "PPM")
# The tag of TIFF.
_BITS_PER_SAMPLE = 258
# All that an image that had to be converted can be.
CONVERSIONS = (*dict.fromkeys(_KINDS.values()), _OTHER_MODE, _OTHER_SIZE)


def read_image(source, image_size=None, channels=3):
    """Decodes an image; of several frames, only the first.

    Args:
        source: path of the file, or its bytes.
        image_size: height and width to resample to (bilinear, antialiased);
            None keeps the image's own.
        channels: 3 for RGB, 1 for grey.

    Returns:
        (H, W, channels) uint8 array, and a list that says what had to be
        converted.

    Raises:
        Exception: of any kind, as Pillow's decoders raise them; a ValueError
            for pixels that are 32-bit numbers.
    """
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    with PIL.Image.open(source) as image:
        has_16_bits = image.mode.startswith("I;16") or (
            image.mode == "I" and image.format in _16_BITS_IN_32
        )
        # Of TIFF, there are 12 bits too.
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0]
        image = PIL.ImageOps.exif_transpose(image)
        # Pillow would clip these at 255 instead of scaling them.
        if has_16_bits:
            high_byte = (np.asarray(image) >> (bits - 8)).astype("uint8")
            image = PIL.Image.fromarray(high_byte)
        elif image.mode in ("I", "F"):
            raise ValueError(
                "its pixels are numbers of 32 bits, and which of them is white "
                "is not known; images of 8 or 16 bits are read"
            )
        return _converted(image, image_size, channels)


def as_pixels(array, image_size=None, channels=3):
    """The pixels of one image as `read_image` would give them.

    Args:
        array: (H, W), (H, W, 1) or (H, W, 3) uint8 array.
        image_size, channels: as in `read_image`.

    Returns:
        As `read_image`.
    """
    image = _image_of(array)
    return _converted(image, image_size, channels)


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


def _converted(image, image_size, channels):
    kinds = []
    if image.mode != _MODES[channels]:
        has_alpha = image.mode in ("RGBA", "LA", "PA")
        kind = "alpha" if has_alpha else image.mode
        kinds.append(_KINDS.get(kind, _OTHER_MODE))
        image = image.convert(_MODES[channels])
    if image_size is not None and image.size != (image_size, image_size):
        kinds.append(_OTHER_SIZE)
        image = image.resize(
            (image_size, image_size), PIL.Image.Resampling.BILINEAR
        )
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels), kinds
