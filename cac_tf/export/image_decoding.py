# SPDX-License-Identifier: Apache-2.0
"""From JPEG, PNG and WebP files to pixels, inside a TensorFlow graph."""

from collections.abc import Callable

from cac_tf.annotations import Tensor
from cac_tf.export.row_by_row import map_rows

# The sizes that three kinds of header claim are in their first bytes.
_HEADER_BYTES = 32
# EXIF is the first marker of a JPEG, or the second; its first table is short.
_EXIF_BYTES = 4096
_EXIF_ENTRIES = 64
_ORIENTATION_TAG = 0x0112
# ITU-R 601, as Pillow converts to grey.
_GREY_WEIGHTS = (0.299, 0.587, 0.114)


def decode_images(
    encoded: Tensor,
    height: int,
    width: int,
    channels: int,
    max_pixels: int,
    file_of: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Decodes, turns upright and resizes files; never fails on a bad one.

    Like the images of a folder in training: bilinear with antialiasing,
    rounded to whole numbers; an alpha channel is dropped, and the EXIF
    orientation of a JPEG is followed (that of other kinds is not). A WebP with
    several frames is refused, because TensorFlow's decoder writes beyond its
    memory on some.

    Args:
        encoded: (B,) string tensor, B >= 1: contents of JPEG, PNG or WebP
            files.
        height, width: size of the images returned.
        channels: 3 for RGB, 1 for grey.
        max_pixels: a file whose header claims more is not decoded.
        file_of: takes a row of `encoded` and returns the file in it, or
            raises when it runs; None if rows are files.

    Returns:
        (B, height, width, channels) float32 in 0...255, and (B,) bool:
        whether the file could be decoded. Pixels of a bad file are 0.

    Example:

    >>> import io, PIL.Image, tensorflow as tf
    >>> file = io.BytesIO()
    >>> PIL.Image.new("RGB", (40, 30), (9, 9, 9)).save(file, "PNG")
    >>> images, is_valid = decode_images(
    ...     tf.constant([file.getvalue(), b"?"]), 8, 8, 3, max_pixels=10**6)
    >>> images[:, 0, 0, 0].numpy(), is_valid.numpy()
    (array([9., 0.], dtype=float32), array([ True, False]))
    """

    def decode(row):
        file = row if file_of is None else file_of(row)
        return _decode(file, height, width, channels, max_pixels)

    return map_rows(decode, encoded, (height, width, channels))


def _decode(file, height, width, channels, max_pixels):
    """From one file to pixels; raises on a bad one."""
    import tensorflow as tf

    header = _bytes(tf.strings.substr(file, 0, _HEADER_BYTES), _HEADER_BYTES)
    is_jpeg = _has(header, 0, b"\xff\xd8\xff")
    is_png = _has(header, 0, b"\x89PNG\r\n\x1a\n")
    is_webp = _has(header, 0, b"RIFF") & _has(header, 8, b"WEBP")
    claimed = tf.case(
        [
            (is_jpeg, lambda: _jpeg_size(file)),
            (is_png, lambda: _png_size(header)),
            (is_webp, lambda: _webp_size(header)),
        ],
        # Nothing is known of other kinds, so they count as too large.
        default=lambda: tf.constant([2**31, 2**31], tf.int64),
    )
    # A file that is too large becomes empty, which no decoder touches.
    # (Each side first: their product may overflow.)
    has_sides = tf.reduce_all((claimed > 0) & (claimed <= max_pixels))
    fits = has_sides & (tf.reduce_prod(claimed) <= max_pixels)
    file = tf.where(fits, file, "")
    pixels = tf.case(
        [
            # TensorFlow's default is a faster, coarser transform.
            (
                is_jpeg,
                lambda: tf.io.decode_jpeg(
                    file, 3, dct_method="INTEGER_ACCURATE"
                ),
            ),
            # With alpha it decodes to four channels only.
            (is_webp, lambda: _first_frame(file, 0)[..., :3]),
        ],
        default=lambda: _first_frame(file, 3),
    )
    pixels = tf.ensure_shape(pixels, (None, None, 3))
    if channels == 1:
        grey = tf.tensordot(
            tf.cast(pixels, tf.float32), tf.constant(_GREY_WEIGHTS), 1
        )
        pixels = tf.round(grey)[..., tf.newaxis]
    orientation = tf.cond(
        is_jpeg, lambda: _orientation(file), lambda: tf.constant(1)
    )
    lies = orientation >= 5
    # Turned after it has shrunk: resizing treats both directions alike.
    size = tf.where(lies, [width, height], [height, width])
    pixels = tf.image.resize(pixels, size, "bilinear", antialias=True)
    pixels = _upright(pixels, orientation)
    pixels = tf.ensure_shape(pixels, (height, width, channels))
    return tf.clip_by_value(tf.round(pixels), 0.0, 255.0)


def _first_frame(file, channels):
    import tensorflow as tf

    # Not decode_webp: a server that lacks it could not load the model at all.
    return tf.io.decode_image(file, channels, expand_animations=False)


def _bytes(text, length):
    """The first bytes of a string as int64, with zeros at the end."""
    import tensorflow as tf

    values = tf.io.decode_raw(text, tf.uint8)
    values = tf.pad(values, [[0, length - tf.size(values)]])
    return tf.cast(tf.ensure_shape(values, (length,)), tf.int64)


def _has(header, start, magic):
    import tensorflow as tf

    return tf.reduce_all(
        tf.equal(header[start : start + len(magic)], list(magic))
    )


def _number(header, places):
    """The bytes at these positions, the most significant first."""
    value = 0
    for place in places:
        value = value * 256 + header[place]
    return value


def _jpeg_size(file):
    import tensorflow as tf

    # Raises on a damaged header.
    shape = tf.image.extract_jpeg_shape(file, tf.int32)
    return tf.cast(shape[:2], tf.int64)


def _png_size(header):
    import tensorflow as tf

    return tf.stack(
        [_number(header, range(20, 24)), _number(header, range(16, 20))]
    )


def _webp_size(header):
    import tensorflow as tf

    lossy = [
        _number(header, (29, 28)) % 16384,
        _number(header, (27, 26)) % 16384,
    ]
    bits = _number(header, (24, 23, 22, 21))
    lossless = [bits // 16384 % 16384 + 1, bits % 16384 + 1]
    extended = [
        _number(header, (29, 28, 27)) + 1,
        _number(header, (26, 25, 24)) + 1,
    ]
    # 0 with several frames: the second bit of the flags.
    still = 1 - header[20] // 2 % 2
    return tf.case(
        [
            (_has(header, 12, b"VP8 "), lambda: tf.stack(lossy)),
            (_has(header, 12, b"VP8L"), lambda: tf.stack(lossless)),
            (_has(header, 12, b"VP8X"), lambda: tf.stack(extended) * still),
        ],
        default=lambda: tf.zeros(2, tf.int64),
    )


def _orientation(file):
    """The EXIF orientation of a JPEG, 1 where it has none."""
    import tensorflow as tf

    start = tf.strings.substr(file, 0, _EXIF_BYTES)
    values = _bytes(start, _EXIF_BYTES)

    def at(place, length=1):
        places = tf.clip_by_value(
            place + tf.range(length, dtype=tf.int64), 0, _EXIF_BYTES - 1
        )
        return tf.gather(values, places)

    def is_at(place, magic):
        return tf.reduce_all(tf.equal(at(place, len(magic)), list(magic)))

    # A JFIF marker may stand before it.
    has_jfif = is_at(2, b"\xff\xe0")
    skipped = _number(at(tf.constant(4, tf.int64), 2), (0, 1)) + 2
    marker = 2 + tf.where(has_jfif, skipped, 0)
    has_exif = is_at(marker, b"\xff\xe1") & is_at(marker + 4, b"Exif\x00\x00")
    tiff = marker + 10
    is_little = is_at(tiff, b"II")

    def number(place, length):
        bytes_ = at(place, length)
        big = _number(bytes_, range(length))
        return tf.where(
            is_little, _number(bytes_, reversed(range(length))), big
        )

    table = tiff + number(tiff + 4, 4)
    count = number(table, 2)
    indices = tf.range(_EXIF_ENTRIES, dtype=tf.int64)
    # Entries of twelve bytes: tag, type, count, value.
    entries = table + 2 + 12 * indices
    in_reach = tf.clip_by_value(entries, 0, _EXIF_BYTES - 2)
    first, second = (tf.gather(values, in_reach + i) for i in (0, 1))
    tags = tf.where(is_little, second * 256 + first, first * 256 + second)
    is_it = tf.equal(tags, _ORIENTATION_TAG) & (indices < count)
    place = tf.reduce_max(tf.where(is_it, entries + 8, -1))
    value = tf.cast(number(place, 2), tf.int32)
    is_valid = has_exif & (place > 0) & (value >= 1) & (value <= 8)
    return tf.where(is_valid, value, 1)


def _upright(pixels, orientation):
    """Pixels as EXIF says that they are to be seen."""
    import tensorflow as tf

    def turned(flips_rows, flips_columns, transposes):
        def turn():
            image = tf.transpose(pixels, (1, 0, 2)) if transposes else pixels
            axes = [0] * flips_rows + [1] * flips_columns
            return tf.reverse(image, axes) if axes else image

        return turn

    # 1: as it is, 2: mirrored, 3: upside down, 4: both; then the same four,
    # transposed: 5, 6 (turned clockwise), 7, 8.
    return tf.switch_case(
        orientation - 1,
        [
            turned(False, False, False),
            turned(False, True, False),
            turned(True, True, False),
            turned(True, False, False),
            turned(False, False, True),
            turned(False, True, True),
            turned(True, True, True),
            turned(True, False, True),
        ],
    )
