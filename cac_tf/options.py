# SPDX-License-Identifier: Apache-2.0
"""Options that say their help and what is allowed, in one place.

The checks of a dataclass of options, its flags of the command line and its
entry in `config.json` are made from its fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
import operator
import os
import textwrap
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any


def field(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    kind: type | None = None,
    choices: Sequence[Any] | Callable[[], Sequence[Any]] | None = None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    **more: Any,
) -> Any:
    """A field of an `Options` class: default, help, and what is allowed.

    Args:
        default: value if none is given; None is allowed only if it is the
            default. Without a default, the option is required.
        help: one sentence for `--help`.
        kind: bool, int, float, str, `os.PathLike`, or tuple for several
            strings; by default the type of the default.
        choices: the allowed values, or a function that returns them.
        at_least, above, at_most, below: limits of a number.
        **more: additional metadata of the field.

    Returns:
        A field for a dataclass.

    Raises:
        ValueError: another kind.
    """
    kind = kind or type(default)
    if kind not in _KINDS:
        raise ValueError(
            "The kind of an option must be one of "
            f"{', '.join(one.__name__ for one in _KINDS)}; got "
            f"{kind.__name__}."
        )
    metadata = {
        "help": help,
        "kind": kind,
        "choices": choices,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "below": below,
        **more,
    }
    return dataclasses.field(default=default, metadata=metadata)


def choices_of(field: dataclasses.Field) -> Sequence[Any] | None:
    """The allowed values of a field, or None where any is."""
    choices = field.metadata.get("choices")
    return tuple(choices()) if callable(choices) else choices


@dataclasses.dataclass(frozen=True)
class Options:
    """The base of dataclasses whose fields are made by `field`.

    Values become plain ones: a whole number of NumPy an int, a path a text,
    a list of texts a tuple.

    Raises:
        ValueError: a value that is not allowed.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Shape(Options):
    ...     corners: int = field(4, "Number of corners.", at_least=3)
    ...     name: str | None = field(None, "Its name.", kind=str)
    >>> Shape(corners=5)
    Shape(corners=5, name=None)
    >>> Shape(corners=2)
    Traceback (most recent call last):
    ValueError: corners must be at least 3; got 2.
    """

    def __post_init__(self) -> None:
        for one in fields_of(self):
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                object.__setattr__(self, one.name, _checked(one, value))


def described(cls: type[Options]) -> str:
    """The documentation of a class, with the help of each field.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Shape(Options):
    ...     \"\"\"A shape.\"\"\"
    ...     corners: int = field(4, "Number of corners.")
    >>> print(described(Shape))
    A shape.
    <BLANKLINE>
    Args:
        corners: Number of corners.
    """
    lines = [
        textwrap.fill(
            f"{one.name}: {one.metadata['help']}",
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            width=76,
        )
        for one in fields_of(cls)
    ]
    return "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", "Args:", *lines])


def fields_of(cls: type[Options] | Options) -> list[dataclasses.Field]:
    """The fields that `field` made; a class may have others."""
    return [one for one in dataclasses.fields(cls) if "kind" in one.metadata]


def _checked(one, value):
    """The plain value of an option.

    Raises:
        ValueError: it is not allowed.
    """
    plain, words = _KINDS[one.metadata["kind"]]
    try:
        value = plain(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{one.name} must be {words}; got {value!r}."
        ) from None
    choices = choices_of(one)
    for given in value if isinstance(value, tuple) else (value,):
        if choices is not None and given not in choices:
            raise ValueError(
                f"{one.name} must be one of {', '.join(map(str, choices))}; "
                f"got {given!r}."
            )
    for limit, is_kept in _LIMITS.items():
        bound = one.metadata[limit]
        if bound is not None and not is_kept(value, bound):
            raise ValueError(
                f"{one.name} must be {limit.replace('_', ' ')} {bound}; got "
                f"{value}."
            )
    return value


def _instance(value, kind):
    if not isinstance(value, kind) or (
        isinstance(value, bool) and kind is not bool
    ):
        raise TypeError
    return value


def _number(value):
    value = float(_instance(value, numbers.Real))
    if not math.isfinite(value):
        raise ValueError
    return value


def _path(value):
    return _instance(os.fspath(value), str)


def _texts(value):
    if isinstance(value, str):
        raise TypeError
    return tuple(str(_instance(one, str)) for one in value)


# By kind: what makes a plain value of one, or raises; and words for it.
_KINDS: dict[type, tuple[Callable[[Any], Any], str]] = {
    bool: (lambda value: _instance(value, bool), "True or False"),
    int: (
        lambda value: operator.index(_instance(value, numbers.Integral)),
        "a whole number (int)",
    ),
    float: (_number, "a finite number (float or int)"),
    str: (lambda value: str(_instance(value, str)), "a string"),
    os.PathLike: (_path, "a path"),
    tuple: (_texts, "a list of strings"),
}

_LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}
