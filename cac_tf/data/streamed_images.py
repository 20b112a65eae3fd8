# SPDX-License-Identifier: Apache-2.0
"""Images that are decoded when they are needed, for data beyond memory."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf.data.image_facts import content_of
from cac_tf.data.image_facts import look_at
from cac_tf.data.image_file import png_bytes
from cac_tf.data.image_file import read_image
from cac_tf.hyperparameters import INTERPOLATIONS

if TYPE_CHECKING:
    from cac_tf.data.image_facts import ImageFacts

# Decoded images that need more than this are streamed.
MOST_BYTES_IN_MEMORY = 1 << 30


def exceeds_memory(count, image_size, channels):
    """Whether this many decoded images should be streamed."""
    return count * image_size**2 * channels > MOST_BYTES_IN_MEMORY


class StreamedImages:
    """Image files that look like an (n, H, W, C) uint8 array.

    Indexing decodes the chosen images; `subset` chooses among them without
    decoding. Training decodes them ahead, in several threads.

    Args:
        sources: sequence of paths, or of files' bytes, in memory or read when
            indexed (`record_files.Records`).
        image_size: height and width that images are resampled to.
        channels: 3 for RGB, 1 for grey.
        facts: `ImageFacts`, where they are known; None: the images are read
            when facts are asked for.
        interpolation: as of `read_image`.

    Example:

    >>> import io, PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("L", (40, 30), 7).save(file, "png")
    >>> images = StreamedImages([file.getvalue()] * 5, 16, channels=1)
    >>> images.shape, images.subset([0, 3]).shape
    ((5, 16, 16, 1), (2, 16, 16, 1))
    >>> images[:2].mean()
    np.float64(7.0)
    """

    # Whether indexing is slow, so that it is worth doing ahead.
    decodes = True

    def __init__(
        self,
        sources: Any,
        image_size: int,
        channels: int = 3,
        facts: ImageFacts | None = None,
        interpolation: str = INTERPOLATIONS[0],
    ) -> None:
        self.sources = sources
        if isinstance(sources, (list, tuple)):
            self.sources = _objects(sources)
        self._image_size, self._channels = image_size, channels
        self.interpolation = interpolation
        self._facts = facts

    @property
    def shape(self) -> tuple[int, int, int, int]:
        size = self._image_size
        return (len(self.sources), size, size, self._channels)

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, rows):
        if np.ndim(rows) == 0 and not isinstance(rows, slice):
            return self._decode(self.sources[rows])
        chosen = [self._decode(source) for source in self.sources[rows]]
        return np.array(chosen, "uint8").reshape(-1, *self.shape[1:])

    def _decode(self, source):
        return read_image(
            source, self._image_size, self._channels, self.interpolation
        )[0]

    @property
    def facts(self) -> ImageFacts:
        """`ImageFacts` of the images; reads them, the first time."""
        if self._facts is None:
            self._facts = look_at(
                self.sources,
                self._image_size,
                self._channels,
                "images",
                interpolation=self.interpolation,
            )
        return self._facts

    @property
    def digests(self) -> np.ndarray:
        """(n, 32) uint8: the SHA-256 of each file, which is not decoded."""
        if self._facts is not None:
            return self._facts.digests
        found = [
            hashlib.sha256(content_of(one)).digest() for one in self.sources
        ]
        return np.frombuffer(b"".join(found), "uint8").reshape(-1, 32)

    def channel_sums(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Sums of the pixels and of their squares by channel, and n H W."""
        pixels = len(self) * self._image_size**2
        facts = self.facts
        return facts.sums.sum(axis=0), facts.squares.sum(axis=0), pixels

    def subset(self, rows: Any) -> StreamedImages:
        """`StreamedImages` of some of the images."""
        return StreamedImages(
            self.sources[rows],
            self._image_size,
            self._channels,
            None if self._facts is None else self._facts[rows],
            self.interpolation,
        )

    def joined(self, other: StreamedImages | np.ndarray) -> StreamedImages:
        """`StreamedImages` of these and of others of the same size.

        Those whose facts are not known yet are read.
        """
        if isinstance(other, np.ndarray):
            other = self.of_array(other)
        return StreamedImages(
            _Joined([self.sources, other.sources]),
            self._image_size,
            self._channels,
            self.facts.joined(other.facts),
            self.interpolation,
        )

    def of_array(self, images: np.ndarray) -> StreamedImages:
        """`StreamedImages` of an array, (n, H, W, C) of the same size, 0...255.

        Kept as PNG files in memory, without loss if it is uint8; else values
        are rounded.
        """
        return StreamedImages(
            [png_bytes(np.rint(image).astype("uint8")) for image in images],
            self._image_size,
            self._channels,
        )


class _Joined:
    """Sequences one after another, or chosen rows of all of them."""

    def __init__(self, parts, rows=None):
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)])
        self._rows = np.arange(self._starts[-1]) if rows is None else rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, rows):
        chosen = self._rows[rows]
        if np.ndim(chosen):
            return _Joined(self._parts, chosen)
        part = np.searchsorted(self._starts, chosen, side="right") - 1
        return self._parts[part][chosen - self._starts[part]]


def _objects(values):
    """A 1-D array of Python objects, which NumPy does not look into."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
