# SPDX-License-Identifier: Apache-2.0
"""A Sphinx extension: the formulas of docstrings."""

import re

# Raw docstrings have two backslashes, other ones are left with one.
_FORMULA = re.compile(r"\\{1,2}\((.+?)\\{1,2}\)", re.DOTALL)


def with_math(text):
    r"""A docstring with its formulas as reStructuredText has them.

    Example:

    >>> with_math(r"Score \\(a + b\\), in [0, 1].")
    'Score :math:`a + b`, in [0, 1].'
    """
    return _FORMULA.sub(
        lambda match: f":math:`{' '.join(match[1].split())}`", text
    )


def _process(app, what, name, obj, options, lines):
    lines[:] = with_math("\n".join(lines)).split("\n")


def setup(app):
    """Called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    # Before napoleon, which has the priority 500 and changes the text.
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True}
