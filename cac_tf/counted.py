# SPDX-License-Identifier: Apache-2.0
"""Numbers of things, as a person says them."""


def counted(number: int, noun: str) -> str:
    """A number and what there is so many of.

    Args:
        number: of the things.
        noun: what one of them is called.

    Example:

    >>> counted(1, "input"), counted(2000, "input"), counted(0, "class")
    ('1 input', '2,000 inputs', '0 classes')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def were(number: int) -> str:
    """The verb for so many things.

    Example:

    >>> were(1), were(2), were(0)
    ('was', 'were', 'were')
    """
    return "was" if number == 1 else "were"
