# SPDX-License-Identifier: Apache-2.0
"""From files of images to pixels, inside a TensorFlow graph."""

from collections.abc import Callable

import numpy as np

from cac_tf.annotations import Tensor
from cac_tf.data import image_formats as formats
from cac_tf.export.row_by_row import map_rows
from cac_tf.hyperparameters import INTERPOLATIONS

_HEADERS = [header for one in formats.FORMATS for header in one.headers]
_FORMATS_OF_HEADERS = [
    number for number, one in enumerate(formats.FORMATS) for _ in one.headers
]
# Farther than any file goes.
_NOWHERE = 1 << 40
# In a BMP: where it is said where pixels begin, and how long the second header
# is. Behind that one are up to 256 colors, and behind these the pixels.
_PIXELS, _SECOND_HEADER, _COLORS = 10, 14, 256


def decode_images(
    encoded: Tensor,
    height: int,
    width: int,
    channels: int,
    max_pixels: int,
    file_of: Callable[[Tensor], Tensor] | None = None,
    interpolation: str = INTERPOLATIONS[0],
) -> tuple[Tensor, Tensor]:
    """Decodes, turns upright and resizes files; never fails on a bad one.

    To the pixels of `cac_tf.data.image_file.read_image`, and at most 1 beside
    them where an image is resized: there, Pillow rounds twice.

    Args:
        encoded: (B,) string tensor, B >= 1: contents of files, see
            `cac_tf.data.image_formats`.
        height, width: size of the images returned.
        channels: 3 for RGB, 1 for grey.
        max_pixels: a file whose header claims more is not decoded.
        file_of: takes a row of `encoded` and returns the file in it, or
            raises when it runs; None if rows are files.
        interpolation: as of `read_image`.

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
        return _decode(file, height, width, channels, max_pixels, interpolation)

    return map_rows(decode, encoded, (height, width, channels))


def _decode(file, height, width, channels, max_pixels, interpolation):
    """From one file to pixels; raises on a bad one."""
    import tensorflow as tf

    header = _bytes(file, 0, formats.HEADER_BYTES)
    fits = _fits(header, [one.pattern for one in _HEADERS])
    is_known = tf.reduce_any(fits)
    # Others count as the last one: libjpeg would print what it thinks of them.
    kind = tf.where(
        is_known, tf.argmax(tf.cast(fits, tf.int32)), len(_HEADERS) - 1
    )
    format_ = tf.gather(tf.constant(_FORMATS_OF_HEADERS), kind)
    claimed = _claimed_size(file, header, kind)
    # A file that is too large, or of another kind, becomes empty, which no
    # decoder touches. (Each side first: their product may overflow.)
    has_sides = tf.reduce_all((claimed > 0) & (claimed <= max_pixels))
    is_small = has_sides & (tf.reduce_prod(claimed) <= max_pixels)
    file = tf.where(is_small & is_known, file, "")
    decoders = {
        # TensorFlow's default is a faster, coarser transform.
        "JPEG": lambda: tf.io.decode_jpeg(
            file, 3, dct_method="INTEGER_ACCURATE"
        ),
        "PNG": lambda: tf.io.decode_png(file, 3),
        # Not decode_webp: a server that lacks it could not load the model at
        # all. (With alpha it decodes to four channels only.)
        "WebP": lambda: tf.io.decode_image(file, expand_animations=False)[
            ..., :3
        ],
        "BMP": lambda: _decode_bmp(file, header),
    }
    pixels = tf.switch_case(
        format_, [decoders[one.name] for one in formats.FORMATS]
    )
    pixels = tf.ensure_shape(pixels, (None, None, 3))
    if channels == 1:
        # Exact: all sums are below 2**24.
        weights = tf.constant(formats.GREY_WEIGHTS, tf.float32)
        grey = tf.tensordot(tf.cast(pixels, tf.float32), weights, 1)
        grey = tf.floor(grey / sum(formats.GREY_WEIGHTS) + 0.5)
        pixels = grey[..., tf.newaxis]
    turn = _orientation(file, format_) - 1
    transposes = [transposes for transposes, *_ in formats.TURNS]
    # Turned after it has shrunk: resizing treats both directions alike.
    size = tf.where(
        tf.gather(tf.constant(transposes), turn),
        [width, height],
        [height, width],
    )
    pixels = tf.image.resize(pixels, size, interpolation, antialias=True)
    pixels = _turned(pixels, turn)
    pixels = tf.ensure_shape(pixels, (height, width, channels))
    return tf.clip_by_value(tf.round(pixels), 0.0, 255.0)


def _bytes(file, place, count, zeros=0):
    """Bytes of a file as int64, with zeros behind them and behind its end."""
    import tensorflow as tf

    found = tf.strings.substr(file, place, count)
    values = tf.io.decode_raw(found, tf.uint8, fixed_length=count + zeros)
    return tf.cast(values, tf.int64)


def _fits(values, patterns):
    """Which of some patterns bytes fit."""
    import tensorflow as tf

    masks, wanted = (
        np.int64([list(getattr(one, name)) for one in patterns])
        for name in ("mask", "value")
    )
    masked = tf.bitwise.bitwise_and(values, masks)
    return tf.reduce_all(tf.equal(masked, wanted), axis=-1)


def _weights(number, count):
    """From bytes to a `Number` of them, before its shift: (count,) factors."""
    weights = np.zeros(count, "int64")
    if number is not None:
        for power, place in enumerate(reversed(number.places)):
            weights[place] = 256**power
    return weights


def _claimed_size(file, header, kind):
    """Height and width that a header claims, as int64."""
    import tensorflow as tf

    sizes = [(one.height, one.width) for one in _HEADERS]

    def of_kind(value):
        table = [[value(one) for one in pair] for pair in sizes]
        return tf.gather(tf.constant(np.int64(table)), kind)

    def in_header():
        weights = of_kind(lambda one: _weights(one, formats.HEADER_BYTES))
        claimed = tf.reduce_sum(header * weights, axis=1)
        shifts = of_kind(lambda one: one.shift if one else 0)
        masks = of_kind(lambda one: 2**one.bits - 1 if one else 0)
        claimed = tf.bitwise.right_shift(claimed, shifts)
        claimed = tf.bitwise.bitwise_and(claimed, masks)
        claimed += of_kind(lambda one: one.more if one else 0)
        # A BMP whose rows begin at the top has a negative height.
        return tf.minimum(claimed, 2**32 - claimed)

    def in_blocks():
        # Raises on a damaged header.
        shape = tf.image.extract_jpeg_shape(file, tf.int32)
        return tf.cast(shape[:2], tf.int64)

    is_in_blocks = tf.constant([height is None for height, _ in sizes])
    return tf.cond(tf.gather(is_in_blocks, kind), in_blocks, in_header)


def _decode_bmp(file, header):
    import tensorflow as tf

    pixels = tf.io.decode_bmp(file)

    def looked_up():
        start = _SECOND_HEADER + header[_SECOND_HEADER]
        place = tf.reduce_sum(
            header[_PIXELS : _PIXELS + 4] * [1, 256, 256**2, 256**3]
        )
        length = tf.clip_by_value(place - start, 0, 4 * _COLORS)
        colors = tf.io.decode_raw(
            tf.strings.substr(file, start, length),
            tf.uint8,
            fixed_length=4 * _COLORS,
        )
        # Blue first, and a byte that says nothing.
        colors = tf.reshape(colors, (_COLORS, 4))[:, 2::-1]
        return tf.gather(colors, tf.cast(pixels[..., 0], tf.int32))

    return tf.cond(
        tf.equal(tf.shape(pixels)[-1], 1), looked_up, lambda: pixels[..., :3]
    )


def _orientation(file, format_):
    """The EXIF orientation of a file, as `image_formats.orientation_of`."""
    import tensorflow as tf

    prefix = formats.EXIF_PREFIX
    names = [
        one.blocks.name if one.blocks else prefix for one in formats.FORMATS
    ]
    name = tf.gather(tf.constant(names), format_)

    def found():
        place = _place_of_exif(file, format_)
        start = tf.strings.substr(file, place, len(prefix))
        has_prefix = tf.cast(tf.equal(start, prefix), tf.int64)
        value = _orientation_in(file, place + len(prefix) * has_prefix)
        is_valid = (place > 0) & (value >= 1) & (value <= len(formats.TURNS))
        return tf.where(is_valid, value, 1)

    # To look for the name takes a fraction of what the loop takes to begin.
    pieces = tf.raw_ops.StringSplitV2(input=[file], sep=name, maxsplit=1)
    return tf.cond(pieces.shape[1] > 1, found, lambda: tf.constant(1))


def _place_of_exif(file, format_):
    """Where the content of the block of EXIF begins; 0 if there is none."""
    import tensorflow as tf

    count = formats.BLOCK_HEADER_BYTES
    last = tf.cast(tf.strings.length(file), tf.int64) - count

    def of_format(value, without=0):
        table = [
            without if one.blocks is None else value(one.blocks)
            for one in formats.FORMATS
        ]
        return tf.gather(tf.constant(np.int64(table)), format_)

    nothing = np.zeros((2, count))
    masks = of_format(
        lambda one: [list(one.exif.mask), list(one.end.mask)], nothing
    )
    wanted = of_format(
        lambda one: [list(one.exif.value), list(one.end.value)], nothing
    )
    weights = of_format(lambda one: _weights(one.length, count), nothing[0])
    others = of_format(lambda one: one.others)
    content = of_format(lambda one: one.content)
    evenness = of_format(lambda one: one.is_even)

    def step(place):
        header = _bytes(file, place, count)
        masked = tf.bitwise.bitwise_and(header, masks)
        fits = tf.reduce_all(tf.equal(masked, wanted), axis=1)
        after = place + tf.reduce_sum(header * weights) + others
        after += tf.bitwise.bitwise_and(after, evenness)
        after = tf.where(fits[1], _NOWHERE, after)
        return (tf.where(fits[0], -(place + content), after),)

    # Once it was found, the place is a negative one.
    (place,) = tf.while_loop(
        lambda place: (place > 0) & (place <= last),
        step,
        (of_format(lambda one: one.start),),
        maximum_iterations=formats.MOST_BLOCKS,
    )
    return tf.maximum(-place, 0)


def _orientation_in(file, place):
    """The orientation in a file, of which EXIF begins at `place`."""
    import tensorflow as tf

    # A number that begins behind the end is 0.
    values = _bytes(file, place, formats.EXIF_BYTES, 4)
    is_little = tf.reduce_all(tf.equal(values[:2], list(b"II")))

    def number(place, length):
        places = place[..., tf.newaxis] + tf.range(length, dtype=tf.int64)
        found = tf.gather(values, tf.minimum(places, formats.EXIF_BYTES))
        powers = 256 ** np.arange(length)
        powers = tf.where(is_little, powers, powers[::-1])
        return tf.reduce_sum(found * powers, axis=-1)

    table = number(tf.constant(4, tf.int64), 4)
    indices = tf.range(formats.EXIF_ENTRIES, dtype=tf.int64)
    entries = table + 2 + formats.EXIF_ENTRY_BYTES * indices
    is_it = tf.equal(number(entries, 2), formats.ORIENTATION_TAG)
    is_it &= indices < number(table, 2)
    entry = tf.reduce_min(tf.where(is_it, entries, _NOWHERE))
    return tf.cast(number(entry + 8, 2), tf.int32)


def _turned(pixels, turn):
    """Pixels after one of `TURNS`."""
    import tensorflow as tf

    def turned(transposes, *reverses):
        def turn():
            image = tf.transpose(pixels, (1, 0, 2)) if transposes else pixels
            axes = [axis for axis, reverse in enumerate(reverses) if reverse]
            return tf.reverse(image, axes) if axes else image

        return turn

    return tf.switch_case(turn, [turned(*one) for one in formats.TURNS])
