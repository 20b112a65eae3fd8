# SPDX-License-Identifier: Apache-2.0
"""Which image files are read, and where their EXIF orientation stands.

Training decodes with Pillow, `cac-predict` and served models in a TensorFlow
graph. Both follow the tables of this file.
"""

from typing import NamedTuple

# Of a camera of 64 megapixels; 200 MB as decoded bytes.
MAX_PIXELS = 2**26
# Red, green and blue in 65,536 parts: ITU-R 601, as Pillow converts to grey.
GREY_WEIGHTS = (19595, 38470, 7471)
# In the first bytes of a file, and of a block in it, stands all that matters.
HEADER_BYTES, BLOCK_HEADER_BYTES = 34, 8
# A file of a gigabyte could have a hundred million blocks.
MOST_BLOCKS = 256
EXIF_PREFIX = b"Exif\x00\x00"
# Its first table, which holds the orientation, is short and comes first.
EXIF_BYTES, EXIF_ENTRIES = 4096, 64
EXIF_ENTRY_BYTES, ORIENTATION_TAG = 12, 0x0112


class Pattern(NamedTuple):
    """Bytes that fit where `mask` has bits."""

    value: bytes
    mask: bytes

    def fits(self, content: bytes) -> bool:
        """Whether the first bytes of `content` fit; missing ones are 0."""
        first = content[: len(self.mask)].ljust(len(self.mask), b"\0")
        masked = int.from_bytes(first) & int.from_bytes(self.mask)
        return masked == int.from_bytes(self.value)


class Number(NamedTuple):
    """A whole number in a header: some bits of some bytes.

    Attributes:
        places: of its bytes, the most significant first.
        shift: how many of the last bits do not belong to it.
        bits: how many of those before them do.
        more: what is added.
    """

    places: tuple[int, ...]
    shift: int = 0
    bits: int = 32
    more: int = 0


class Header(NamedTuple):
    """A header that a format may have, and the size that it claims.

    Height and width are None where the decoder looks for them.
    """

    pattern: Pattern
    height: Number | None = None
    width: Number | None = None


class Blocks(NamedTuple):
    """How the blocks follow each other of which a file consists.

    Attributes:
        start: place of the first block in the file.
        length: what a block says to be its length.
        others: how many bytes of the block this does not count.
        is_even: whether a byte follows where the length is odd.
        name: bytes without which there is no EXIF.
        exif: header of the block that holds it.
        content: place in this block where EXIF begins.
        end: header of the block from which on nothing is looked for.
    """

    start: int
    length: Number
    others: int
    is_even: bool
    name: bytes
    exif: Pattern
    content: int
    end: Pattern


class ImageFormat(NamedTuple):
    """Files of one format that are read.

    Attributes:
        name: as people write it.
        headers: tuple of `Header`, one of which such a file has.
        magic: `Pattern` of all files of the format.
        limits: what is said of those with another header.
        blocks: `Blocks`, or None where there is no EXIF.
    """

    name: str
    magic: Pattern
    headers: tuple[Header, ...]
    limits: str = ""
    blocks: Blocks | None = None


def _pattern(size, fixed, flags=()):
    """A `Pattern` of {place: bytes} and of (place, mask, value) of one byte."""
    value, mask = bytearray(size), bytearray(size)
    for place, wanted in fixed.items():
        value[place : place + len(wanted)] = wanted
        mask[place : place + len(wanted)] = b"\xff" * len(wanted)
    for place, bits, wanted in flags:
        value[place], mask[place] = wanted, bits
    return Pattern(bytes(value), bytes(mask))


def _block(fixed):
    return _pattern(BLOCK_HEADER_BYTES, fixed)


_NEVER = _pattern(BLOCK_HEADER_BYTES, {}, [(0, 0, 1)])


def _format(name, fixed, headers, limits="", blocks=None):
    """An `ImageFormat` of headers as (more bytes, flags, height, width)."""
    return ImageFormat(
        name,
        _pattern(HEADER_BYTES, fixed),
        tuple(
            Header(_pattern(HEADER_BYTES, {**fixed, **more}, flags), *size)
            for more, flags, *size in headers
        ),
        limits,
        blocks,
    )


FORMATS = (
    _format(
        "JPEG",
        {0: b"\xff\xd8\xff"},
        [({}, ())],
        blocks=Blocks(
            start=2,
            length=Number((2, 3)),
            others=2,
            is_even=False,
            name=b"Exif",
            exif=_block({0: b"\xff\xe1", 4: b"Exif"}),
            content=4,
            end=_block({0: b"\xff\xda"}),
        ),
    ),
    _format(
        "PNG",
        {0: b"\x89PNG\r\n\x1a\n"},
        [({}, (), Number((20, 21, 22, 23)), Number((16, 17, 18, 19)))],
        blocks=Blocks(
            start=8,
            length=Number((0, 1, 2, 3)),
            others=12,
            is_even=False,
            name=b"eXIf",
            exif=_block({4: b"eXIf"}),
            content=8,
            end=_block({4: b"IDAT"}),
        ),
    ),
    _format(
        "WebP",
        {0: b"RIFF", 8: b"WEBP"},
        [
            (
                {12: b"VP8 "},
                (),
                Number((29, 28), bits=14),
                Number((27, 26), bits=14),
            ),
            (
                {12: b"VP8L"},
                (),
                Number((24, 23, 22, 21), shift=14, bits=14, more=1),
                Number((24, 23, 22, 21), bits=14, more=1),
            ),
            # The bit of 2 says that there are several frames. TensorFlow's
            # decoder writes beyond its memory on some of these.
            (
                {12: b"VP8X"},
                [(20, 2, 0)],
                Number((29, 28, 27), more=1),
                Number((26, 25, 24), more=1),
            ),
        ],
        "with several frames",
        Blocks(
            start=12,
            length=Number((7, 6, 5, 4)),
            others=8,
            is_even=True,
            name=b"EXIF",
            exif=_block({0: b"EXIF"}),
            content=8,
            # The pixels come first there, in few blocks.
            end=_NEVER,
        ),
    ),
    _format(
        "BMP",
        {0: b"BM"},
        [
            (
                # A second header of fewer than 256 bytes; bits of a pixel; no
                # compression, and no masks of colors.
                {15: bytes(3), 28: bytes([bits, 0]), 30: bytes(4)},
                # The bit of 32 is in 40, the length of the second header since
                # 1990, and in those of later ones; not in older ones.
                [(14, 32, 32)],
                Number((25, 24, 23, 22)),
                Number((21, 20, 19, 18)),
            )
            for bits in (8, 24, 32)
        ],
        "that is compressed or does not have 8, 24 or 32 bits per pixel",
    ),
)
*_names, _last = [one.name for one in FORMATS]
# As they stand in messages.
NAMES = f"{', '.join(_names)} or {_last}"

# For the EXIF orientations 1 to 8: whether rows and columns change places, and
# then whether the order of the rows, and of the columns, is reversed.
TURNS = (
    (False, False, False),
    (False, False, True),
    (False, True, True),
    (False, True, False),
    (True, False, False),
    (True, False, True),
    (True, True, True),
    (True, True, False),
)


def format_of(content: bytes) -> ImageFormat | None:
    """The format of a file, or None for one that has none of these.

    Raises:
        ValueError: it has, but another header than those that are read; the
            message says what it is.

    Example:

    >>> format_of(b"\\xff\\xd8\\xff\\xe0").name
    'JPEG'
    >>> format_of(b"GIF89a")
    """
    for one in FORMATS:
        if one.magic.fits(content):
            if any(header.pattern.fits(content) for header in one.headers):
                return one
            raise ValueError(f"a {one.name} image {one.limits}")
    return None


def orientation_of(content: bytes, blocks: Blocks | None) -> int:
    """The EXIF orientation of a file, 1...8; 1 where it has none.

    Example:

    >>> import io, PIL.Image
    >>> file, exif = io.BytesIO(), PIL.Image.Exif()
    >>> exif[ORIENTATION_TAG] = 6
    >>> PIL.Image.new("L", (8, 8)).save(file, "PNG", exif=exif)
    >>> orientation_of(file.getvalue(), FORMATS[1].blocks)
    6
    """
    if blocks is None:
        return 1
    place = blocks.start
    for _ in range(MOST_BLOCKS):
        header = content[place : place + BLOCK_HEADER_BYTES]
        if len(header) < BLOCK_HEADER_BYTES or blocks.end.fits(header):
            break
        if blocks.exif.fits(header):
            start = place + blocks.content
            if content.startswith(EXIF_PREFIX, start):
                start += len(EXIF_PREFIX)
            return _orientation_in(content[start : start + EXIF_BYTES])
        length = bytes(header[i] for i in blocks.length.places)
        place += int.from_bytes(length) + blocks.others
        place += place % 2 if blocks.is_even else 0
    return 1


def _orientation_in(exif):
    exif = exif.ljust(EXIF_BYTES + 4, b"\0")
    order = "little" if exif.startswith(b"II") else "big"

    def number(place, length):
        return int.from_bytes(exif[place : place + length], order)

    table = number(4, 4)
    for entry in range(min(number(table, 2), EXIF_ENTRIES)):
        place = table + 2 + EXIF_ENTRY_BYTES * entry
        if number(place, 2) == ORIENTATION_TAG:
            value = number(place + 8, 2)
            return value if 1 <= value <= len(TURNS) else 1
    return 1
