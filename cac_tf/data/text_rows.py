# SPDX-License-Identifier: Apache-2.0
"""Inputs that are texts."""

from typing import Any

import numpy as np


def are_texts(values: Any) -> bool:
    """Whether an array holds texts, or the objects that they are."""
    return getattr(values, "dtype", np.dtype("f4")).kind in "OUT"


def text_rows(values: np.ndarray, what: str) -> np.ndarray:
    """Texts as objects, so that each takes as much memory as it is long.

    Args:
        values: (n,) array.
        what: where they are, for messages.

    Raises:
        ValueError: another shape, or a row without a text.

    Example:

    >>> text_rows(np.array(["a", None], object), "The train part")
    Traceback (most recent call last):
    ValueError: The train part must contain strings; row 1 (counted from 0) \
contains None.
    """
    values = values.astype(object)
    if values.ndim != 1:
        raise ValueError(
            f"{what} must be texts of shape (n,); got shape {values.shape}."
        )
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"{what} must contain strings; row {row} (counted from 0) "
                f"contains {value!r}."
            )
    return values
