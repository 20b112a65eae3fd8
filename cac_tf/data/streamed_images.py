# SPDX-License-Identifier: Apache-2.0
"""Images that are decoded when they are needed, for data beyond memory."""

import hashlib

import numpy as np

from cac_tf.data.image_file import read_image

# Decoded images that need more than this are streamed.
MOST_BYTES_IN_MEMORY = 1 << 30


def exceeds_memory(count, image_size, channels):
    """Whether this many decoded images should be streamed."""
    return count * image_size**2 * channels > MOST_BYTES_IN_MEMORY


class StreamedImages:
    """Image files that look like an (n, H, W, C) uint8 array.

    Indexing decodes the chosen images; `subset` chooses among them without
    decoding. Training reads them through `dataset`.

    Args:
        sources: sequence of paths, or of files' bytes.
        image_size: height and width that images are resampled to.
        channels: 3 for RGB, 1 for grey.
        digests: sequence of the SHA-256 of each file, in bytes, where they
            are known; None: they are computed when they are asked for.

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

    def __init__(self, sources, image_size, channels=3, digests=None):
        self.sources = _objects(sources)
        self._digests = None if digests is None else _objects(digests)
        self._image_size, self._channels = image_size, channels

    @property
    def shape(self):
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
        return read_image(source, self._image_size, self._channels)[0]

    def subset(self, rows):
        """`StreamedImages` of some of the images."""
        return StreamedImages(
            self.sources[rows],
            self._image_size,
            self._channels,
            None if self._digests is None else self._digests[rows],
        )

    def file_digests(self):
        """The SHA-256 of each file, in bytes."""
        if self._digests is None:
            self._digests = _objects([file_digest(s) for s in self.sources])
        return list(self._digests)

    def joined(self, other):
        """`StreamedImages` of these and of others of the same size."""
        return StreamedImages(
            [*self.sources, *other.sources], self._image_size, self._channels
        )

    def dataset(self, labels, batch_size):
        """A `tf.data.Dataset` of (images, labels) batches, in order.

        Decodes on all cores while the model trains on the batch before.
        """
        try:
            import tensorflow as tf
        except ImportError as error:
            raise ValueError(
                "Images are streamed through tf.data, for which TensorFlow "
                "must be installed. Without it, load them with stream=False."
            ) from error

        def decode(row, label):
            # Stateless, and so in parallel even where operations must be
            # deterministic.
            image = tf.numpy_function(
                self.__getitem__, [row], tf.uint8, stateful=False
            )
            image.set_shape(self.shape[1:])
            return image, label

        rows = np.arange(len(self))
        return (
            tf.data.Dataset.from_tensor_slices((rows, labels))
            .map(decode, tf.data.AUTOTUNE, deterministic=True)
            .batch(batch_size)
            .prefetch(tf.data.AUTOTUNE)
        )


def file_digest(source):
    """The SHA-256 of a file, given its path or its bytes."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).digest()
    with open(source, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _objects(values):
    """A 1-D array of Python objects, which NumPy does not look into."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
