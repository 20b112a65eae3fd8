# SPDX-License-Identifier: Apache-2.0
"""Sheets of pictures: rows of images with a name, under a heading."""

import html
import typing

import numpy as np
import PIL.Image

from cac_tf.reporting import page


class Row(typing.NamedTuple):
    """Images side by side.

    Args:
        name: of the row.
        images: (n, H, W, C), values 0...255, C 1, 3 or 4.
        captions: one for each image, or none.
    """

    name: str
    images: np.ndarray
    captions: tuple[str, ...] = ()


class Sheet(typing.NamedTuple):
    """Rows of images.

    Args:
        title: the heading.
        text: what there is to see, or "".
        rows: from top to bottom.
    """

    title: str
    text: str
    rows: tuple[Row, ...]


def as_picture(image):
    """A `PIL.Image` of (H, W, C) values 0...255."""
    pixels = np.clip(np.rint(image), 0, 255).astype("uint8")
    if pixels.shape[-1] not in (3, 4):
        pixels = pixels[..., 0]
    return PIL.Image.fromarray(pixels)


def sheet_section(sheet):
    """The HTML of a `Sheet`."""
    rows = [
        (html.escape(row.name), _images(sheet.title, row)) for row in sheet.rows
    ]
    table = page.scrolled(page.table(["row", "images"], rows), sheet.title)
    text = f"<p>{html.escape(sheet.text)}</p>" if sheet.text else ""
    return f"<h2>{html.escape(sheet.title)}</h2>{text}{table}"


def _images(title, row):
    captions = row.captions or ("",) * len(row.images)
    alt = html.escape(f"{title}: {row.name}")
    cells = "".join(
        f'<div class="picture"><img alt="{alt}" '
        f'src="{page.png(as_picture(image))}">{html.escape(caption)}</div>'
        for image, caption in zip(row.images, captions, strict=True)
    )
    return f'<div class="sheet">{cells}</div>'
