# SPDX-License-Identifier: Apache-2.0
"""A function of one row, for a batch in which some rows may be bad."""

from collections.abc import Callable
from typing import Any

from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor


def map_rows(
    function: Callable[..., Any],
    values: Tensor,
    shape: Shape,
    dtype: str = "float32",
) -> tuple[Tensor, Tensor]:
    """Applies `function` to each row; rows on which it fails are marked.

    An operation that raises fails a whole request, and in a served batch the
    neighbours of a bad row belong to other clients.

    Args:
        function: takes a scalar string tensor, gives a tensor of `shape` and
            `dtype`, or raises when it runs.
        values: (B,) string tensor, B >= 1.
        shape: of one result.
        dtype: of one result.

    Returns:
        (B, *shape), 0 or "" where a row failed, and (B,) bool: whether the
        row succeeded.

    Example:

    >>> import tensorflow as tf
    >>> numbers, is_good = map_rows(
    ...     tf.strings.to_number, tf.constant(["7", "seven"]), ())
    >>> numbers.numpy().tolist(), is_good.numpy().tolist()
    ([7.0, 0.0], [True, False])
    """
    import tensorflow as tf

    def numbered(row, value):
        return row, function(value)

    count, zeros = tf.size(values), tf.zeros(shape, dtype)
    # A row that raises is left out. The last one is there for every batch:
    # nothing can be taken out of an empty data set.
    rows = (
        tf.data.Dataset.from_tensor_slices((tf.range(count), values))
        .map(numbered)
        .ignore_errors()
        .concatenate(tf.data.Dataset.from_tensors((count, zeros)))
        .batch(tf.cast(count, tf.int64) + 1)
    )
    options = tf.data.Options()
    # One short pass: tuning itself would take longer.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    places, results = rows.with_options(options).get_single_element()
    places = places[:, tf.newaxis]
    size = count + 1
    results = tf.tensor_scatter_nd_update(
        tf.zeros(tf.stack([size, *shape]), dtype), places, results
    )
    found = tf.scatter_nd(places, tf.ones_like(places[:, 0]), [size])
    return results[:count], tf.equal(found[:count], 1)
