# SPDX-License-Identifier: Apache-2.0
"""A Sphinx extension: equations as MathML, which needs neither script nor net.

Docutils translates them; browsers show them by themselves.
"""

from docutils import nodes
from docutils.utils.math import latex2mathml


def mathml(equation, is_block):
    r"""An equation of LaTeX as MathML.

    Example:

    >>> "<mi>θ</mi>" in mathml(r"\theta", False)
    True
    """
    # Those that docutils does not know.
    equation = equation.replace(r"\dots", r"\ldots")
    return latex2mathml.tex2mathml(equation, as_block=is_block)


def _inline(translator, node):
    translator.body.append(mathml(node.astext(), False))
    raise nodes.SkipNode


def _block(translator, node):
    # With room for what is higher than its box; else browsers show scroll bars.
    made = mathml(node.astext(), True)
    translator.body.append(f'<div style="padding: 0.4em 0">{made}</div>')
    raise nodes.SkipNode


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
