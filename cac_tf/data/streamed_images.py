# SPDX-License-Identifier: Apache-2.0
"""Images that are decoded when they are needed, for data beyond memory."""

import numpy as np

from cac_tf.data.image_file import read_image

# Decoded images that need more than this are streamed.
MOST_BYTES_IN_MEMORY = 1 << 30


def exceeds_memory(count, image_size, channels):
    """Whether so many decoded images are better streamed."""
    return count * image_size**2 * channels > MOST_BYTES_IN_MEMORY


class StreamedImages:
    """Image files that look like an (n, H, W, C) uint8 array.

    Indexing decodes the images asked for; `subset` chooses among them without
    decoding. Training reads them through `dataset`.

    Args:
        sources: sequence of paths, or of files' bytes.
        image_size: height and width that images are resampled to.
        channels: 3 for RGB, 1 for grey.

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

    def __init__(self, sources, image_size, channels=3):
        self.sources = np.empty(len(sources), object)
        self.sources[:] = sources
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
            self.sources[rows], self._image_size, self._channels
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
                "must be installed. Without it, pass --nostream."
            ) from error

        def decode(row, label):
            # Without state, and so in parallel even where operations must
            # be deterministic.
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
