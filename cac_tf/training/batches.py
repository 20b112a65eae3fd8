# SPDX-License-Identifier: Apache-2.0
"""Examples in batches, in an order that depends only on seed and epoch."""

import concurrent.futures
import threading

import keras
import numpy as np

from cac_tf.cores import usable_cores
from cac_tf.keras_private import rows_held_here

# Where images must be decoded, this many batches are decoded ahead while the
# model trains on another.
_BATCHES_AHEAD = 2


class Batches(keras.utils.PyDataset):
    """Batches of examples for Keras, each made when it is requested.

    No copy of all images is made. Images that are decoded when indexed (those
    with a true `decodes`, as `StreamedImages`) are decoded by several threads
    ahead of the training. (Keras' own workers are not used: they keep
    batches of one epoch for the next, whose order is different.)

    Args:
        examples: object with `images`, `labels` and `size`: arrays of n rows,
            or objects that give arrays when indexed with an array of row
            numbers. Labels may be the images themselves.
        batch_size: positive int; the last batch of an epoch may be smaller.
        seed: seed of the order, a non-negative int; None: the given order.

    Raises:
        ValueError: no examples, a different number of labels, or a batch size
            that is not positive.

    Example:

    >>> from cac_tf.data import Examples
    >>> examples = Examples(np.zeros((5, 2), "float32"), np.arange(5))
    >>> batches = Batches(examples, batch_size=2, seed=1)
    >>> [batches[i][1].tolist() for i in range(batches.num_batches)]
    [[4, 0], [1, 2], [3]]
    >>> batches.epoch = 1
    >>> [batches[i][1].tolist() for i in range(batches.num_batches)]
    [[1, 4], [0, 3], [2]]
    """

    def __init__(self, examples, batch_size, seed=None):
        super().__init__()
        if examples.size == 0:
            raise ValueError("There are no examples to train on.")
        if len(examples.images) != examples.size or (
            len(examples.labels) != examples.size
        ):
            raise ValueError(
                f"{len(examples.labels)} labels for {len(examples.images)} "
                "images."
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be positive; got {batch_size}.")
        self._images, self._labels = examples.images, examples.labels
        if isinstance(self._labels, (list, tuple)):
            self._labels = np.asarray(self._labels)
        self._size, self._batch_size = examples.size, batch_size
        self._seed = seed
        self._executor = None
        if getattr(self._images, "decodes", False):
            # More would only wait for each other: of a small image, Python's
            # own part takes longer than the decoding.
            self._threads = usable_cores()
            self._executor = concurrent.futures.ThreadPoolExecutor(
                self._threads, thread_name_prefix="decode"
            )
        self._lock = threading.Lock()
        self.epoch = 0

    @property
    def epoch(self):
        """The epoch, counted from 0, that decides the order."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch):
        order = np.arange(self._size)
        if self._seed is not None:
            order = np.random.default_rng([self._seed, epoch]).permutation(
                self._size
            )
        with self._lock:
            self._epoch, self._order, self._pending = epoch, order, {}

    @property
    def num_batches(self):
        return -(-self._size // self._batch_size)

    def __getitem__(self, index):
        """(images, labels) of a batch, arrays of at most `batch_size` rows.

        Where several processes share each batch, images of other processes'
        devices are black: nobody looks at them.
        """
        rows = self._rows(index)
        labels = None
        if self._labels is not self._images:
            labels = _as_keras_takes_it(self._labels[rows])
        if self._executor is None:
            images = self._read(rows[rows_held_here(len(rows))])
        else:
            images = self._decoded_ahead(index)
        images = _in_place(images, len(rows))
        return images, images if labels is None else labels

    def _decoded_ahead(self, index):
        with self._lock:
            end = min(index + 1 + _BATCHES_AHEAD, self.num_batches)
            for ahead in range(index, end):
                if ahead not in self._pending:
                    self._pending[ahead] = self._submit(self._rows(ahead))
            parts = self._pending.pop(index)
        return np.concatenate([part.result() for part in parts])

    def on_epoch_end(self):
        with self._lock:
            self._pending = {}

    def close(self):
        """Ends the threads; no further batch can be read."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _rows(self, index):
        start = index * self._batch_size
        return self._order[start : start + self._batch_size]

    def _submit(self, rows):
        """The decoding of a batch's images, divided among the threads."""
        rows = rows[rows_held_here(len(rows))]
        parts = np.array_split(rows, min(self._threads, len(rows)))
        return [self._executor.submit(self._read, part) for part in parts]

    def _read(self, rows):
        return _as_keras_takes_it(self._images[rows])


def _in_place(images, count):
    """The images at their rows of a batch of `count`."""
    if len(images) == count:
        return images
    batch = np.zeros((count, *images.shape[1:]), images.dtype)
    batch[rows_held_here(count)] = images
    return batch


def _as_keras_takes_it(values):
    """Floats in the default precision, as `fit` has them; texts as tensors."""
    values = np.asarray(values)
    if values.dtype == object:
        return keras.ops.convert_to_tensor(values)
    floatx = keras.config.floatx()
    if values.dtype.kind == "f" and values.dtype.name != floatx:
        # NumPy itself has no bfloat16.
        return keras.ops.convert_to_numpy(keras.ops.cast(values, floatx))
    return values
