# SPDX-License-Identifier: Apache-2.0
"""Class indices and names, and what stands for "no known class"."""

import collections
import unicodedata

import numpy as np

# As a label: an input of no known class. As an answer: rejected.
UNKNOWN = -1
# Its name among the class names.
UNKNOWN_NAME = "unknown"


def check_labels(labels, num_classes, allow_unknown=False, where=""):
    """Raises ValueError unless all labels are whole numbers in 0...N-1.

    Args:
        labels: (B,) or (B, 1) array of numbers, or of bool: False is class 0,
            True class 1.
        num_classes: N.
        allow_unknown: whether -1, for "unknown", is allowed too.
        where: put in front of the position, e.g. "batch 3, ".

    Returns:
        (B,) int64 labels.
    """
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            "Labels must be class indices of shape (batch,); got shape "
            f"{labels.shape}. One-hot labels are not supported: pass "
            "argmax(labels, axis=-1)."
        )
    if labels.dtype.kind == "b":
        labels = labels.astype("int64")
    if labels.dtype.kind not in "iuf":
        raise ValueError(
            "Labels must be whole numbers (class indices); got "
            f"{_kind_of(labels)}."
        )
    lowest = UNKNOWN if allow_unknown else 0
    is_whole = labels == np.floor(labels)
    is_valid = is_whole & (labels >= lowest) & (labels < num_classes)
    if not is_valid.all():
        position = int(np.flatnonzero(~is_valid)[0])
        value = labels[position]
        problem = (
            "is not a whole number"
            if not is_whole[position]
            else "is out of range"
        )
        unknown = ", or -1 for unknown," if allow_unknown else ""
        raise ValueError(
            f"Label {value} at {where}position {position} {problem}: allowed "
            f"values are 0 to {num_classes - 1}{unknown} "
            f"({int((~is_valid).sum())} of the {labels.size} labels here are "
            "invalid)."
        )
    return labels.astype("int64")


def _kind_of(labels):
    if labels.size and isinstance(labels[0], (str, bytes)):
        return (
            f"strings such as {labels[0]!s:.40}. To convert them: "
            "class_names, labels = numpy.unique(labels, "
            "return_inverse=True); or, with your own class_names, labels = "
            "[class_names.index(x) for x in labels]"
        )
    return f"dtype {labels.dtype}"


def check_class_names(names, of=None):
    """Refuses names that do not tell classes apart or are no line of text.

    Args:
        names: the names.
        of: whose classes they are, for the message.

    Returns:
        List of the names, those of NumPy as plain texts.

    Raises:
        ValueError: a name that is no text, is empty, is not one line of UTF-8
            without control characters, or that two classes have; or two that
            look alike: they differ by Unicode's composition of characters, or
            by marks that are not seen, such as those of the direction.

    Example:

    >>> check_class_names(["cat", "dog", "cat"], "pets")
    Traceback (most recent call last):
    ValueError: Class names of pets must be unique; these are repeated: cat.
    """
    what = f"Class names of {of}" if of is not None else "Class names"
    names = list(names)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{what} must be non-empty strings; got {name!r}.")
        if not _is_one_line_of_utf8(name):
            raise ValueError(
                f"{what} must be UTF-8 strings on one line, without control "
                f"characters; got {name!r}."
            )
    counts = collections.Counter(names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        more = f" and {len(twice) - 20} more" if len(twice) > 20 else ""
        raise ValueError(
            f"{what} must be unique; these are repeated: "
            f"{', '.join(twice[:20])}{more}."
        )
    seen = {}
    for name in names:
        other = seen.setdefault(_as_seen(name), name)
        if other != name:
            raise ValueError(
                f"{what} must be visually distinct; these look alike: "
                f"{other!a} and {name!a}. Write both in the same Unicode form "
                "(NFC), without invisible formatting or direction marks."
            )
    return [str(name) for name in names]


def _as_seen(text):
    """What is left of a text without marks that are not seen (Cf), in NFC."""
    shown = (c for c in text if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", "".join(shown))


def _is_one_line_of_utf8(text):
    """Labels are written as lines. (Folder names may use other encodings.)"""
    if len(text.splitlines()) != 1:
        return False
    # Cc: control characters; Cs: stand-ins for bytes that are not UTF-8.
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
