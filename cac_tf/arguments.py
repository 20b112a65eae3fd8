# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several rooms have."""

import math
from typing import Any


def as_float(value: Any) -> float:
    """A number of any kind as a float; NaN where it is none.

    Example:

    >>> import numpy as np
    >>> as_float(np.array(0.5)), as_float("0.5"), as_float([0.5])
    (0.5, nan, nan)
    """
    try:
        return math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """An argument as an int.

    Raises:
        ValueError: it is not a whole number, or below the least one allowed.

    Example:

    >>> whole_number("rank", 2.0)
    2
    >>> whole_number("rank", 2.5)
    Traceback (most recent call last):
    ValueError: rank must be a whole number of at least 1; got 2.5.
    """
    number = as_float(value)
    if number != number // 1 or not least <= number < math.inf:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got {value!r}."
        )
    return int(value)
