# SPDX-License-Identifier: Apache-2.0
"""Inputs that are no images: rows of finite numbers, as float32."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_MOST_ROWS_NAMED = 10
# By so much the largest of a vector's numbers exceeds the usual one at most.
_MOST_TIMES = 100


def finite_rows(values: ArrayLike, what: str) -> np.ndarray:
    """Numbers as float32, without NaN and infinity.

    Args:
        values: (n, ...) numbers or bool.
        what: where they are, for messages.

    Returns:
        (n, ...) float32 array; the same object where it was one.

    Raises:
        ValueError: no numbers, or rows with NaN, infinity or a number that
            float32 cannot hold.

    Example:

    >>> finite_rows([[1, 2], [3, 4]], "made.npz").dtype
    dtype('float32')
    >>> finite_rows([[0.0], [np.nan]], "x_train in made.npz")
    Traceback (most recent call last):
    ValueError: x_train in made.npz: NaN, infinity or missing numbers in \
1 of 2 rows (counted from 0): 1. Remove these rows or fill in the values.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "buif":
        raise ValueError(f"{what} must be numbers; got {values.dtype}.")
    with np.errstate(over="ignore"):
        values = values.astype("float32", copy=False)
    is_finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    if not is_finite.all():
        rows = np.flatnonzero(~is_finite)
        named = ", ".join(map(str, rows[:_MOST_ROWS_NAMED]))
        more = ", ..." if len(rows) > _MOST_ROWS_NAMED else ""
        raise ValueError(
            f"{what}: NaN, infinity or missing numbers in {len(rows):,} of "
            f"{len(values):,} rows (counted from 0): {named}{more}. Remove "
            "these rows or fill in the values."
        )
    return values


def column_statistics(
    values: Any, are_columns: bool = False
) -> tuple[list[float], list[float]]:
    """What to take off each number of an input, and to divide it by.

    Columns of a table are measured in units of their own, so each is brought
    to mean 0 and deviation 1. The numbers of a vector have one unit, and their
    sizes and signs mean something: nothing is taken off, and all are divided
    by one number, after which the mean square of the vectors' lengths is 1.
    Numbers whose sizes differ by a factor of more than a hundred are taken for
    columns, whatever is said.

    Args:
        values: (n, ...) finite numbers.
        are_columns: whether they are columns of a table.

    Returns:
        Two lists of floats, nested as an input is. A column that never varies
        is divided by 1, so that it becomes 0 and not NaN.

    Example:

    >>> values = np.float32([[1, 7], [3, 7]])
    >>> column_statistics(values, are_columns=True)
    ([2.0, 7.0], [1.0, 1.0])
    >>> np.round(column_statistics(values), 2).tolist()
    [[0.0, 0.0], [7.35, 7.35]]
    """
    values = np.asarray(values, "float64")
    squares = np.square(values).mean(axis=0)
    usual = np.quantile(squares, 0.5, method="lower")
    if are_columns or squares.max() > _MOST_TIMES**2 * usual:
        mean, std = values.mean(axis=0), values.std(axis=0)
        # The deviation of a constant is only rounding.
        is_constant = std <= 1e-6 * np.abs(mean)
        return mean.tolist(), np.where(is_constant, 1.0, std).tolist()
    size = np.sqrt(squares.sum()) or 1.0
    return np.zeros_like(squares).tolist(), np.full_like(squares, size).tolist()
