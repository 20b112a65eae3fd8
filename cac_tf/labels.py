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
        labels: (B,) or (B, 1) array.
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
            f"{labels.shape}. One-hot labels are not taken: pass "
            "argmax(labels, axis=-1)."
        )
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            "Labels must be whole numbers (class indices); got dtype "
            f"{labels.dtype}."
        )
    lowest = UNKNOWN if allow_unknown else 0
    is_whole = labels == np.floor(labels)
    is_valid = is_whole & (labels >= lowest) & (labels < num_classes)
    if not is_valid.all():
        position = int(np.flatnonzero(~is_valid)[0])
        value = labels[position]
        problem = (
            "is no whole number"
            if not is_whole[position]
            else "is out of range"
        )
        unknown = ", or -1 for unknown," if allow_unknown else ""
        raise ValueError(
            f"Label {value} at {where}position {position} {problem}: allowed "
            f"are 0 to {num_classes - 1}{unknown} ({int((~is_valid).sum())} of "
            f"{labels.size} labels here are not)."
        )
    return labels.astype("int64")


def check_class_names(names, of=None):
    """Refuses names that do not tell classes apart or are no line of text.

    Args:
        names: the names.
        of: whose classes they are, for the message.

    Raises:
        ValueError: a name that is no text, is empty, is not one line of UTF-8
            without control characters, or that two classes have.

    Example:

    >>> check_class_names(["cat", "dog", "cat"], "pets")
    Traceback (most recent call last):
    ValueError: Class names of pets must differ; these do not: cat.
    """
    what = f"Class names of {of}" if of is not None else "Class names"
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"{what} must be texts that are not empty; got {name!r}."
            )
        if not _is_one_line_of_utf8(name):
            raise ValueError(
                f"{what} must be UTF-8 text on one line, without control "
                f"characters; got {name!r}."
            )
    counts = collections.Counter(names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        more = f" and {len(twice) - 20} more" if len(twice) > 20 else ""
        raise ValueError(
            f"{what} must differ; these do not: {', '.join(twice[:20])}{more}."
        )


def _is_one_line_of_utf8(text):
    """Labels are written as lines. (Folder names may use other encodings.)"""
    if len(text.splitlines()) != 1:
        return False
    # Cc: control characters; Cs: stand-ins for bytes that are not UTF-8.
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
