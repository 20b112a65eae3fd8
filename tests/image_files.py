# SPDX-License-Identifier: Apache-2.0
"""Image files of every kind that is read, made of known pixels."""

import io
import zlib

import numpy as np
import PIL.Image

ORIENTATIONS = range(1, 9)
# Where the first row and the first column of a file are to be seen (EXIF 2.3,
# 4.6.4), as x or y, and whether it is counted from the other end.
_ROWS = ["y", "y", "-y", "-y", "x", "-x", "-x", "x"]
_COLUMNS = ["x", "-x", "-x", "x", "y", "y", "-y", "-y"]
_COLORS = np.random.default_rng(1).integers(0, 256, (16, 3), "uint8")
# Format, mode, how it is saved; those of WebP with `exact` keep what is under
# alpha.
_LOSSLESS = [
    *(("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
    ("PNG", "I;16", {}),
    ("PNG", "P", {"transparency": 3}),
    ("PNG", "L", {"transparency": 200}),
    ("PNG", "RGB", {"optimize": True}),
    *(("WEBP", mode, {"lossless": True}) for mode in ("L", "RGB")),
    ("WEBP", "RGBA", {"lossless": True, "exact": True}),
]
_LOSSY = [
    ("JPEG", "L", {"quality": 95}),
    ("JPEG", "RGB", {"quality": 95, "subsampling": 0}),
    ("JPEG", "RGB", {"quality": 90, "subsampling": 2, "progressive": True}),
    ("JPEG", "CMYK", {"quality": 95, "subsampling": 0}),
    ("WEBP", "RGB", {"quality": 98}),
    ("WEBP", "RGBA", {"quality": 98, "exact": True}),
]
_BMP = [("BMP", mode, {}) for mode in ("L", "P", "RGB", "RGBA")]


def exif_of(orientation, endian=">"):
    """EXIF that says this orientation, behind something else."""
    exif = PIL.Image.Exif()
    exif.endian = endian
    exif[0x010E] = "a description that comes first"
    exif[0x0112] = orientation
    return exif


def saved(image, format, **options):
    """The bytes of a file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def stored(upright, orientation):
    """(H, W, C) pixels in the order in which a file has them."""

    def order(axes):
        axis = axes[orientation - 1]
        indices = np.arange(upright.shape["yx".index(axis[-1])])
        return axis[-1], indices[::-1] if axis[0] == "-" else indices

    places = dict([order(_ROWS), order(_COLUMNS)])
    taken = upright[np.ix_(places["y"], places["x"])]
    return taken if _ROWS[orientation - 1][-1] == "y" else taken.swapaxes(0, 1)


def kinds(pixels):
    """Files of every kind, and what is to be seen in them.

    Args:
        pixels: (H, W, 4) uint8: red, green, blue and alpha.

    Yields:
        A text that says which, bytes, (H, W, 3) uint8 pixels, and whether they
        are exact.
    """
    for format, mode, options in (*_LOSSLESS, *_LOSSY):
        upright = _in_mode(pixels, mode)[1]
        for orientation in ORIENTATIONS:
            for endian in "<>":
                image, _ = _in_mode(stored(pixels, orientation), mode)
                exif = exif_of(orientation, endian)
                yield (
                    f"{format} {mode} {options} {orientation} {endian}",
                    saved(image, format, exif=exif, **options),
                    upright,
                    (format, mode, options) in _LOSSLESS,
                )
    for channels in (1, 2, 3, 4):
        for orientation in ORIENTATIONS:
            file = png_of_16_bits(
                stored(pixels, orientation)[..., -channels:], orientation
            )
            seen = pixels[..., -channels:][..., :3]
            if channels < 3:
                seen = np.repeat(seen[..., :1], 3, axis=-1)
            yield f"PNG {channels} x 16 {orientation}", file, seen, True
    for format, mode, options in _BMP:
        image, upright = _in_mode(pixels, mode)
        yield f"BMP {mode}", saved(image, format, **options), upright, True
    yield "BMP of 32 bits", bmp_of_32_bits(pixels), pixels[..., :3], True
    yield "BMP from the top", from_the_top(pixels), pixels[..., :3], True


def _in_mode(pixels, mode):
    """An image of some of the pixels, and what is to be seen in it."""
    rgb, grey = pixels[..., :3], pixels[..., 0]
    if mode == "1":
        grey = np.where(grey > 127, 255, 0).astype("uint8")
        image = PIL.Image.fromarray(grey == 255)
    elif mode == "P":
        image = PIL.Image.fromarray(grey % 16)
        image.putpalette(_COLORS.tobytes())
        return image, _COLORS[grey % 16]
    elif mode == "I;16":
        image = PIL.Image.fromarray(grey.astype("uint16") * 256 + 201)
    elif mode in ("RGB", "RGBA"):
        return PIL.Image.fromarray(pixels[..., : len(mode)]), rgb
    elif mode == "CMYK":
        return PIL.Image.fromarray(rgb).convert(mode), rgb
    elif mode == "LA":
        image = PIL.Image.fromarray(np.stack([grey, pixels[..., 3]], axis=-1))
    else:
        image = PIL.Image.fromarray(grey)
    return image, np.repeat(grey[..., np.newaxis], 3, axis=-1)


def chunk(kind, content):
    """A chunk of a PNG."""
    checksum = zlib.crc32(kind + content).to_bytes(4)
    return len(content).to_bytes(4) + kind + content + checksum


def png_of_16_bits(pixels, orientation):
    """(H, W, C) uint8 pixels as the high bytes in a PNG."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    size = width.to_bytes(4) + height.to_bytes(4)
    values = pixels.astype(">u2") * 256 + 201
    rows = b"".join(b"\0" + row.tobytes() for row in values.astype(">u2"))
    exif = exif_of(orientation).tobytes().removeprefix(b"Exif\0\0")
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", size + bytes([16, kind, 0, 0, 0])),
            chunk(b"eXIf", exif),
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


def bmp_of_32_bits(pixels, height=None):
    """(H, W, 4) pixels in a BMP, whose fourth bytes say nothing."""
    rows, width, _ = pixels.shape
    header = bytearray(saved(PIL.Image.new("RGB", (width, rows)), "BMP")[:54])
    header[28] = 32
    header[22:26] = (height or rows).to_bytes(4, "little", signed=True)
    return bytes(header) + pixels[::-1][..., [2, 1, 0, 3]].tobytes()


def from_the_top(pixels):
    """The same, with the first row first."""
    return bmp_of_32_bits(pixels[::-1], -len(pixels))


def not_read(pixels):
    """Whole images of kinds that are not read, by what is said of them."""
    image = PIL.Image.fromarray(pixels[..., :3])
    others = image.transpose(PIL.Image.Transpose.ROTATE_180)
    kinds = "not JPEG, PNG, WebP or BMP"
    frames = {"save_all": True, "append_images": [others]}
    for format in ("GIF", "TIFF", "PPM", "TGA", "JPEG2000"):
        yield f"an image in {format} format, {kinds}", saved(image, format)
    yield f"an image in GIF format, {kinds}", saved(image, "GIF", **frames)
    whole = np.int32(pixels[..., 0])
    yield (
        f"an image in TIFF format, {kinds}",
        saved(PIL.Image.fromarray(whole), "TIFF"),
    )
    yield "a WebP image with several frames", saved(image, "WEBP", **frames)
    limits = "that is compressed or does not have 8, 24 or 32 bits per pixel"
    yield f"a BMP image {limits}", saved(image.convert("1"), "BMP")
    compressed = bytearray(saved(image, "BMP"))
    compressed[30] = 1
    yield f"a BMP image {limits}", bytes(compressed)
    yield "not a JPEG, PNG, WebP or BMP image", b"no image"
    yield "not a JPEG, PNG, WebP or BMP image", b""
    for format, name in (("PNG", "PNG"), ("WEBP", "WebP"), ("BMP", "BMP")):
        file = saved(image, format)
        yield f"a damaged {name} image", file[: len(file) // 2]
        yield f"a damaged {name} image", file[:36]
    yield "a damaged PNG image", saved(image, "PNG")[:-1]
    yield "a damaged JPEG image", saved(image, "JPEG")[:300]


def png_that_claims(width, height):
    """A PNG of a few bytes that says that it is of this size."""
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", size + b"\x08\x02\0\0\0"),
            chunk(b"IDAT", zlib.compress(bytes(1000))),
            chunk(b"IEND", b""),
        ]
    )
