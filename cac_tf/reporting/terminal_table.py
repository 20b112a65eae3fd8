# SPDX-License-Identifier: Apache-2.0
"""Tables on the terminal, in its width: no number is cut off."""

from collections.abc import Sequence
from typing import Any
from typing import TextIO

import rich.box
import rich.console
import rich.table

from cac_tf.plain_text import for_terminal

_PADDING = 2  # of each column


def print_table(
    names: Sequence[str],
    numbers: Sequence[str],
    rows: Sequence[tuple[Sequence[str], bool]],
    *,
    title: str | None = None,
    caption: str | None = None,
    file: TextIO | None = None,
) -> None:
    """Prints a table, in parts below each other if it is too wide.

    Args:
        names: headers of the first columns, whose texts may wrap; every part
            has them.
        numbers: headers of the other columns, whose texts are kept whole.
        rows: pairs of a row's texts, as many as headers, and whether the row
            is in the background.
        title, caption: texts above and below.
        file: where to write; standard output by default.

    Example:

    >>> print_table(["score"], ["AUROC", "OSCR"],  # doctest: +ELLIPSIS
    ...     [(["gamma", "0.9731", "0.9652"], False)])
    <BLANKLINE>
      score    AUROC     OSCR...
      gamma   0.9731   0.9652...
    """
    # Names of users' data are no markup.
    plain: dict[str, Any] = {
        "file": file,
        "highlight": False,
        "markup": False,
        "emoji": False,
    }
    console = rich.console.Console(**plain)
    names, numbers = ([*map(for_terminal, texts)] for texts in (names, numbers))
    rows = [([*map(for_terminal, texts)], dim) for texts, dim in rows]
    columns = list(zip(*(texts for texts, _ in rows), strict=True))
    columns = columns or [()] * (len(names) + len(numbers))
    # Headers and names are broken between words.
    for_names = [
        min(_longest_word(header, *texts), max(console.width // 3, 10))
        for header, texts in zip(names, columns, strict=False)
    ]
    for_numbers = [
        max([_longest_word(header), *map(len, texts)])
        for header, texts in zip(numbers, columns[len(names) :], strict=True)
    ]
    parts = _parts(
        for_numbers,
        console.width - _taken(for_names) - _PADDING,
    )
    for k, part in enumerate(parts):
        table = rich.table.Table(
            box=rich.box.SIMPLE_HEAD,
            title=title if k == 0 else None,
            caption=caption if k == len(parts) - 1 else None,
        )
        for name, width in zip(names, for_names, strict=True):
            table.add_column(name, overflow="fold", min_width=width)
        for i in part:
            table.add_column(
                numbers[i], justify="right", min_width=for_numbers[i]
            )
        for texts, is_background in rows:
            cells = [
                *texts[: len(names)],
                *(texts[len(names) + i] for i in part),
            ]
            table.add_row(*cells, style="dim" if is_background else None)
        shown = [*for_names, *(for_numbers[i] for i in part)]
        wide = rich.console.Console(
            **plain, width=max(console.width, _taken(shown) + _PADDING)
        )
        wide.print(table)


def _longest_word(*texts):
    return max(len(word) for text in texts for word in text.split(" "))


def _taken(widths):
    return sum(width + _PADDING + 1 for width in widths)


def _parts(widths, available):
    """Lists of the columns that fit side by side, at least one each."""
    parts, left = [[]], available
    for i, width in enumerate(widths):
        left -= _taken([width])
        if left < 0 and parts[-1]:
            parts.append([])
            left = available - _taken([width])
        parts[-1].append(i)
    return parts
