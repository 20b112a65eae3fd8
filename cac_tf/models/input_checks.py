# SPDX-License-Identifier: Apache-2.0
"""Checks on the host of what goes into training and prediction.

Compiled code cannot raise errors, so labels and images are checked before they
get there: arrays as a whole, data sets batch by batch.
"""

import os

import keras
import numpy as np

from cac_tf.cores import map_ahead
from cac_tf.labels import UNKNOWN
from cac_tf.labels import check_labels

# Marks our own message inside an error that a data pipeline wraps around it.
_MARK = "[cac_tf] "
_IMAGES_PER_CHUNK = 1024
# Of a batch whose size nobody has chosen: 128 images of 32 x 32 pixels.
_NUMBERS_PER_BATCH = 2**19
_FEWEST_ROWS, _MOST_ROWS = 32, 4096


def check_finite(values, what, where=""):
    """Raises ValueError if a row of `values` has a NaN or an infinity."""
    values = np.asarray(values)
    if values.dtype.kind not in "fV":
        return
    for start in range(0, len(values), _IMAGES_PER_CHUNK):
        chunk = values[start : start + _IMAGES_PER_CHUNK].astype("float32")
        is_finite = np.isfinite(chunk.reshape(len(chunk), -1)).all(axis=1)
        if not is_finite.all():
            rows = (start + np.flatnonzero(~is_finite))[:10].tolist()
            raise ValueError(
                f"{what} must be finite, but {where}position "
                f"{', '.join(map(str, rows))} holds NaN or infinity."
            )


def check_shape(shape, expected):
    """Raises ValueError for an input of another shape than `expected`.

    Sizes may differ, where preprocessing resizes; channels may not.
    """
    if len(shape) != len(expected) or shape[-1:] != expected[-1:]:
        is_single = tuple(shape) == tuple(expected)[1:]
        hint = " A single input needs an axis for the batch: x[np.newaxis]."
        raise ValueError(
            f"The model takes inputs of shape {tuple(expected)}; got "
            f"{tuple(shape)}.{hint if is_single else ''}"
        )


def absent_classes(counts, class_names):
    """Names of the classes without any label, as one text."""
    return ", ".join(
        name
        for name, count in zip(class_names, counts, strict=True)
        if count == 0
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
            "Inputs must be an array or a data set of batches, not a text or "
            f"the name of a file; got {data!r}. An image file is read by "
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
    return np.asarray(data)


def as_labels(labels):
    """`labels`; a list, which Keras does not take, as an array."""
    return np.asarray(labels) if isinstance(labels, list) else labels


def is_array(data):
    """Whether `data` is one array or tensor, not a data set of batches."""
    return isinstance(data, np.ndarray) or (
        hasattr(data, "__array__") and hasattr(data, "shape")
    )


def _is_sliceable(data):
    """Whether slices of `data` are arrays of images, as for a lazy array."""
    return all(hasattr(data, n) for n in ("shape", "__getitem__", "__len__"))


def _is_tf_dataset(data):
    return hasattr(data, "element_spec") and hasattr(data, "enumerate")


class _CheckedPyDataset(keras.utils.PyDataset):
    """A PyDataset whose batches are checked as they are read."""

    def __init__(self, source, check):
        super().__init__(
            workers=source.workers,
            use_multiprocessing=source.use_multiprocessing,
            max_queue_size=source.max_queue_size,
        )
        self._source, self._check = source, check

    def __getitem__(self, index):
        batch = self._source[index]
        self._check(index, batch)
        return batch

    def __len__(self):
        return len(self._source)

    @property
    def num_batches(self):
        return self._source.num_batches

    def on_epoch_begin(self):
        self._source.on_epoch_begin()

    def on_epoch_end(self):
        self._source.on_epoch_end()


def _images_and_labels(batch):
    is_pair = isinstance(batch, (tuple, list)) and len(batch) in (2, 3)
    if not is_pair or not hasattr(batch[0], "shape"):
        raise ValueError(
            "The batches of a training data set must be (inputs, labels) or "
            "(inputs, labels, sample_weight), with one tensor of inputs; got "
            f"{type(batch).__name__}."
        )
    return batch[:2]


def checked_batches(data, num_classes, allow_unknown=False, check_inputs=None):
    """The data set `data`, checking each batch of (images, labels).

    Args:
        data: `tf.data.Dataset`, `keras.utils.PyDataset` or generator.
        num_classes: N.
        allow_unknown: whether the label -1 is allowed.
        check_inputs: takes the images of a batch, its place in the data, and
            what to call them in messages. None: they must be finite.

    Returns:
        A data set of the same kind, and an (N,) array that counts the labels
        as they are read. Data sets of other kinds cannot be checked: they are
        returned unchanged, with None.
    """
    counts = np.zeros(num_classes, "int64")

    def check(index, batch):
        where = f"batch {int(index)}, "
        try:
            images, labels = _images_and_labels(batch)
            labels = check_labels(labels, num_classes, allow_unknown, where)
            if check_inputs is None:
                check_finite(images, "Images", where)
            else:
                check_inputs(images, where, "Images")
        except ValueError as error:
            raise ValueError(_MARK + str(error)) from None
        np.add.at(counts, labels[labels != UNKNOWN], 1)

    if _is_tf_dataset(data):
        return _checked_tf_dataset(data, check), counts
    if isinstance(data, keras.utils.PyDataset):
        return _CheckedPyDataset(data, check), counts
    if hasattr(data, "__next__"):

        def generator():
            for index, batch in enumerate(data):
                check(index, batch)
                yield batch

        return generator(), counts
    return data, None


def _checked_tf_dataset(dataset, check):
    import tensorflow as tf

    def check_in_python(index, images, labels):
        check(index, (images, labels))
        return np.int64(0)

    def check_element(index, batch):
        images, labels = _images_and_labels(batch)
        done = tf.numpy_function(
            check_in_python, [index, images, labels], tf.int64
        )
        with tf.control_dependencies([done]):
            return tf.nest.map_structure(tf.identity, batch)

    _images_and_labels(dataset.element_spec)
    return dataset.enumerate().map(check_element).prefetch(tf.data.AUTOTUNE)


def unwrap_dataset_error(error):
    """The error that a check of `checked_batches` raised, or None."""
    text = str(error)
    if _MARK not in text:
        return None
    message = text.split(_MARK, 1)[1]
    return ValueError(message.split("\n", 1)[0])


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


def iterate_batches(data, labels=None, batch_size=None):
    """Yields (images, labels or None, description of the batch's place).

    Args:
        data: array of images, a tuple (images, labels), or a data set whose
            elements are batches: images or (images, labels, ...).
        labels: labels for an array of images.
        batch_size: for arrays; data sets have their own batches. None: see
            `batch_size_for`.

    Raises:
        ValueError: see `as_data`; numbers of labels and images that differ.
    """
    if isinstance(data, tuple) and len(data) >= 2 and labels is None:
        data, labels = data[:2]
    data = as_data(data)
    if is_array(data) or _is_sliceable(data):
        labels = None if labels is None else np.asarray(labels)
        if labels is not None and len(labels) != len(data):
            raise ValueError(f"{len(labels)} labels for {len(data)} images.")
        batch_size = batch_size or batch_size_for(data.shape[1:])
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
