# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several rooms have."""

import math
import numbers
from typing import Any


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
    is_whole = isinstance(value, numbers.Real) and value == value // 1
    if not is_whole or not least <= value < math.inf:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got {value!r}."
        )
    return int(value)
