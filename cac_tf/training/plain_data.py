# SPDX-License-Identifier: Apache-2.0
"""Plain data as JSON, with its arrays beside it."""

import json

import numpy as np


def to_json(value, arrays):
    """Plain data as text, with its arrays kept separately.

    Args:
        value: None, a number, a text, an array, or lists, tuples and dicts (by
            texts) of these.
        arrays: list to which the arrays and NumPy's numbers are appended.

    Returns:
        JSON.

    Raises:
        ValueError: a value of another kind.

    Example:

    >>> arrays = []
    >>> text = to_json({"best": (np.arange(3), 0.5)}, arrays)
    >>> text
    '{"dict": {"best": {"tuple": [{"array": 0}, 0.5]}}}'
    >>> from_json(text, arrays)
    {'best': (array([0, 1, 2]), 0.5)}
    """

    def encoded(value):
        kind = type(value)
        if (
            isinstance(value, (np.ndarray, np.generic))
            and value.dtype.kind in "biufcSU"
        ):
            arrays.append(np.asarray(value))
            return {"array": len(arrays) - 1}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": {key: encoded(each) for key, each in value.items()}}
        if kind is tuple:
            return {"tuple": [encoded(each) for each in value]}
        if kind is list:
            return [encoded(each) for each in value]
        if value is None or kind in (bool, int, float, str):
            return value
        raise ValueError(
            "Only None, numbers, strings, arrays, and lists, tuples and "
            f"dicts (with string keys) of these can be saved; got {value!r}."
        )

    return json.dumps(encoded(value))


def from_json(text, arrays):
    """The value that `to_json` wrote."""

    def decoded(value):
        if isinstance(value, list):
            return [decoded(each) for each in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "array":
            return arrays[content][()]  # A number, if it has no dimensions.
        if kind == "tuple":
            return tuple(decoded(each) for each in content)
        return {key: decoded(each) for key, each in content.items()}

    return decoded(json.loads(text))
