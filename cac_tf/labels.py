# SPDX-License-Identifier: Apache-2.0
"""Names of classes, and what stands for "no known class"."""

import collections
import unicodedata

# As a label: an input of no known class. As an answer: rejected.
UNKNOWN = -1
# Its name among the class names.
UNKNOWN_NAME = "unknown"


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
