# SPDX-License-Identifier: Apache-2.0
"""Checks on the host of what a classifier is given.

Compiled code cannot raise errors, so inputs are checked before they get there:
arrays as a whole, data sets batch by batch.
"""

import os

import keras
import numpy as np

from cac_tf.arguments import whole_number
from cac_tf.cores import map_ahead
from cac_tf.models.raw_inputs import rows_not_finite

# Of a batch whose size nobody has chosen: 128 images of 32 x 32 pixels.
_NUMBERS_PER_BATCH = 2**19
_FEWEST_ROWS, _MOST_ROWS = 32, 4096
# Texts, which a classifier makes many numbers of.
_TEXTS_PER_BATCH = 256
# The cardinality of a data set of TensorFlow.
_INFINITE = -1


def check_finite(values, what, where=""):
    """Raises ValueError if a row of `values` has a NaN or an infinity."""
    rows = rows_not_finite(values)
    if rows.size:
        raise ValueError(
            f"{what} must be finite, but {where}position "
            f"{', '.join(map(str, rows[:10]))} contains NaN or infinity."
        )


class _ListOfBatches(keras.utils.PyDataset):
    """A list of batches, each a tuple."""

    def __init__(self, batches):
        super().__init__()
        self._batches = batches

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        return self._batches[index]


def as_data(data):
    """`data`: a list of inputs as an array, a list of batches as a data set.

    Raises:
        ValueError: a file name, a text or a dict.
    """
    if isinstance(data, (str, bytes, os.PathLike)):
        raise ValueError(
            "Inputs must be an array or a data set of batches, not a string "
            f"or a file name; got {data!r}. Pass a single text as a list: "
            "[text]. Read an image file with "
            "np.asarray(keras.utils.load_img(path))[np.newaxis]."
        )
    if isinstance(data, dict):
        raise ValueError(
            "Inputs must be one array or a data set of batches, not a dict "
            f"({', '.join(map(str, data))})."
        )
    if not isinstance(data, list):
        return data
    if data and isinstance(data[0], tuple) and np.ndim(data[0][0]):
        return _ListOfBatches(data)
    # (Otherwise a missing text would become one that says so.)
    is_of_texts = any(isinstance(one, (str, bytes)) for one in data)
    return np.asarray(data, object if is_of_texts else None)


def require_end(data):
    """Raises ValueError for a data set that says that it has no end."""
    if isinstance(data, keras.utils.PyDataset):
        is_endless = data.num_batches is None
    else:
        cardinality = getattr(data, "cardinality", None)
        is_endless = callable(cardinality) and int(cardinality()) == _INFINITE
    if is_endless:
        raise ValueError(
            f"The data set ({type(data).__name__}) is infinite. Remove its "
            ".repeat(), or limit it to the number of batches you need: "
            "data.take(n); for a PyDataset, num_batches must be a number."
        )


def is_array(data):
    """Whether `data` is one array or tensor, not a data set of batches."""
    return isinstance(data, np.ndarray) or (
        hasattr(data, "__array__") and hasattr(data, "shape")
    )


def _is_sliceable(data):
    """Whether slices of `data` are arrays of images, as for a lazy array."""
    return all(hasattr(data, n) for n in ("shape", "__getitem__", "__len__"))


def batch_size_for(shape):
    """Number of inputs of this shape in a batch where nobody has chosen one.

    A call costs the same for few numbers as for many, so rows of a table come
    in large batches. A network's memory grows with the size of its inputs.

    Example:

    >>> batch_size_for((20,)), batch_size_for((32, 32, 3))
    (4096, 128)
    """
    size = max(1, int(np.prod(shape)))
    rows = max(1, _NUMBERS_PER_BATCH // size)
    # A power of two.
    return min(max(2 ** (rows.bit_length() - 1), _FEWEST_ROWS), _MOST_ROWS)


def _batch_size_of(data):
    kind = getattr(getattr(data, "dtype", None), "kind", "f")
    if kind in "OUST":
        return _TEXTS_PER_BATCH
    return batch_size_for(data.shape[1:])


def iterate_batches(data, labels=None, batch_size=None):
    """Yields (images, labels or None, description of the batch's place).

    Args:
        data: array of images, a tuple (images, labels), or a data set whose
            elements are batches: images or (images, labels, ...).
        labels: labels for an array of images.
        batch_size: for arrays; data sets have their own batches. None: see
            `batch_size_for`.

    Raises:
        ValueError: see `as_data`; numbers of labels and images that differ;
            labels beside a data set, or one that says that it has no end; a
            batch size that is not a whole number above 0.
    """
    if isinstance(data, tuple) and len(data) >= 2 and labels is None:
        data, labels = data[:2]
    data = as_data(data)
    if is_array(data) or _is_sliceable(data):
        labels = None if labels is None else np.asarray(labels)
        if labels is not None and len(labels) != len(data):
            raise ValueError(f"{len(labels)} labels for {len(data)} images.")
        if batch_size is None:
            batch_size = _batch_size_of(data)
        batch_size = whole_number("batch_size", batch_size)
        slices = [
            slice(start, start + batch_size)
            for start in range(0, len(data), batch_size)
        ]
        # Files of images are decoded while the model works on a batch before.
        read = map_ahead if getattr(data, "decodes", False) else map
        batches = read(data.__getitem__, slices)
        for rows, images in zip(slices, batches, strict=True):
            images = np.asarray(images)
            yield images, None if labels is None else labels[rows], ""
        return
    require_end(data)
    if labels is not None:
        raise ValueError(
            "y holds the labels of an array; a data set of batches contains "
            "its own, as pairs (inputs, labels): leave y out."
        )
    if isinstance(data, keras.utils.PyDataset):
        batches = (data[i] for i in range(data.num_batches))
    else:
        batches = data
    for index, batch in enumerate(batches):
        images, batch_labels = batch, None
        if isinstance(batch, (tuple, list)):
            images = batch[0]
            batch_labels = batch[1] if len(batch) > 1 else None
        yield (
            np.asarray(images),
            None if batch_labels is None else np.asarray(batch_labels),
            f"batch {index}, ",
        )


def first_batch(data):
    """The first inputs of data, as an array.

    Args:
        data: as of `iterate_batches`.

    Raises:
        ValueError: there are none.
    """
    for images, _, _ in iterate_batches(data):
        return images
    raise ValueError("The known data must contain at least one example.")
