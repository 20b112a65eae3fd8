# SPDX-License-Identifier: Apache-2.0
"""What the HTML pages are made of: templates, tables, pictures."""

import base64
import html
import importlib.resources
import io
import string


def resource(name):
    """The text of a file of this package."""
    folder = importlib.resources.files("cac_tf.reporting")
    return (folder / name).read_text(encoding="utf-8")


def filled(name, *, title, **parts):
    """A page whose body is a template of this package, with its own parts."""
    body = string.Template(resource(name)).substitute(parts, title=title)
    return string.Template(resource("page.html")).substitute(
        title=title, style=resource("page.css"), body=body
    )


def scrolled(table, label):
    """A table that may be wider than the window."""
    return (
        f'<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{html.escape(label)}">{table}</div>'
    )


def table(columns, rows):
    """A table whose rows begin with their names.

    Args:
        columns: HTML of each column's head.
        rows: lists of HTML, one for each column.
    """
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def section(title, values):
    """A heading and a table of nested values; "" if there are none."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td>"
        "</tr>"
        for name, value in flat(values).items()
        if value is not None
    )
    if not rows:
        return ""
    return f'<h2>{title}</h2><table class="settings">{rows}</table>'


def flat(values, prefix=""):
    """The entries of nested dicts, by their whole names.

    Example:

    >>> flat({"recipe": {"epochs": 3}, "seed": 0})
    {'recipe.epochs': 3, 'seed': 0}
    """
    entries = {}
    for name, value in values.items():
        if isinstance(value, dict):
            entries |= flat(value, f"{prefix}{name}.")
        else:
            entries[prefix + name] = value
    return entries


def svg(figure, alt):
    """An `<img>` of a matplotlib figure, without a ground of its own.

    Args:
        figure: of matplotlib.
        alt: what it shows, in words.
    """
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None}, transparent=True
    )
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<img class="drawn" alt="{html.escape(alt)}" '
        f'src="data:image/svg+xml;base64,{data}">'
    )


def png(picture):
    """The data URI of a `PIL.Image`, exact."""
    return _picture(picture, "png")


def jpeg(picture):
    """The data URI of a `PIL.Image`, smaller and not exact."""
    return _picture(picture.convert("RGB"), "jpeg")


def _picture(picture, kind):
    buffer = io.BytesIO()
    picture.save(buffer, format=kind)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/{kind};base64,{data}"
