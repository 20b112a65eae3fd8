# SPDX-License-Identifier: Apache-2.0
"""Names of users' data, where a character may mean more than itself."""

import re
import unicodedata

# With these a formula begins, in the programs that open tables; and the
# apostrophe, so that the rule can be undone.
_NO_TEXT = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
# Characters that turn the direction of those behind them.
_TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = "\u200e\u200f\u061c"
_MARKUP = re.compile(r"[\\`*\[\]<>&|~$]|(?<![^\W_])_|_(?![^\W_])")


def for_spreadsheet(text: str) -> str:
    """A text that is no formula where a spreadsheet opens it.

    One that begins with `=`, `+`, `-`, `@`, a tab, the end of a line or an
    apostrophe gets an apostrophe in front. So `text.removeprefix("'")` undoes
    it.

    Example:

    >>> for_spreadsheet("=1+1"), for_spreadsheet("a=b"), for_spreadsheet("'a'")
    ("'=1+1", 'a=b', "''a'")
    """
    return f"'{text}" if text.startswith(_NO_TEXT) else text


def for_terminal(text: str) -> str:
    r"""A text that neither moves the cursor nor turns what stands behind it.

    Control characters, ends of lines, marks of direction and stand-ins for
    bytes that are no UTF-8 are shown as Python writes them.

    Example:

    >>> print(for_terminal("\x1b[2Jcat\u202egnp.exe"))
    \x1b[2Jcat\u202egnp.exe
    """
    return "".join(
        c.encode("unicode_escape").decode() if _is_hidden(c) else c
        for c in text
    )


def _is_hidden(character):
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in _TURNING
        or character in _MARKS
    )


def for_markdown(text: str) -> str:
    """A text as Markdown that shows it as it is, within a line.

    Example:

    >>> print(for_markdown("traffic_light"), for_markdown("<b>*"))
    traffic_light \\<b\\>\\*
    >>> print(for_markdown("a\\n# b"))
    a\\\\n# b
    """
    # (Underscores inside a word mean nothing in Markdown; the end of a line
    # would begin something else.)
    return _MARKUP.sub(r"\\\g<0>", for_terminal(text))
