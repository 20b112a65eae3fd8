# SPDX-License-Identifier: Apache-2.0
"""A page to look at groups of rejected inputs: pictures, texts or numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.counted import counted
from cac_tf.counted import were
from cac_tf.reporting import page

if TYPE_CHECKING:
    from cac_tf.open_world.grouping import Group
    from cac_tf.open_world.grouping import Grouping

# Of a group, and of those in none; of so many groups.
_TYPICAL, _DOUBTFUL, _IN_NONE = 12, 6, 24
_MOST_GROUPS = 60
_LONGEST_TEXT, _NUMBERS, _FEW_PIXELS = 200, 8, 64


def summary_of(grouping: Grouping) -> str:
    """What was found, in a sentence."""
    number, count = len(grouping.groups), len(grouping.group)
    left = int((grouping.group < 0).sum())
    if not count:
        return "No input was rejected, so there are no groups."
    rejected = f"{counted(count, 'input')} {were(count)}"
    if not number:
        return f"{rejected} rejected; no groups of similar inputs were found."
    rest = f"; {left:,} in no group" if left else ""
    return (
        f"{rejected} rejected: {count - left:,} in {counted(number, 'group')} "
        f"of similar inputs{rest}."
    )


def rows_shown(grouping: Grouping) -> np.ndarray:
    """Places of the inputs that the page shows, ascending."""
    found = [row for _, rows in _sections(grouping) for row in rows]
    return np.unique(np.array(found, "int64"))


def write_groups_page(
    path: Path,
    grouping: Grouping,
    names: Sequence[str],
    inputs: Mapping[int, Any],
) -> None:
    """Writes one HTML page that needs no other file.

    Args:
        path: of the file.
        grouping: of `open_world.group`.
        names: n texts that say which input is which.
        inputs: of `rows_shown`, by place: a `PIL.Image`, a text, an array of
            numbers, or None where it cannot be read any more.
    """
    groups = grouping.groups
    sections = {
        title: _inputs(rows, names, grouping.strength, inputs)
        for title, rows in _sections(grouping)
    }
    rest = sections.pop(_LEFT, "")
    shown = "".join(
        f'<section><h2 id="group{k}">Group {k}</h2><p>{_said(one)}.</p>'
        f"<h3>Most typical</h3>{sections[_TITLES[0], k]}"
        + (
            f"<h3>Least typical</h3>{sections[_TITLES[1], k]}"
            if sections[_TITLES[1], k]
            else ""
        )
        + "</section>"
        for k, one in enumerate(groups[:_MOST_GROUPS])
    )
    if len(groups) > _MOST_GROUPS:
        shown += (
            f"<p>Only the {_MOST_GROUPS} largest of {len(groups)} groups are "
            "shown.</p>"
        )
    text = page.filled(
        "groups.html",
        title="Rejected inputs, grouped by similarity",
        summary=summary_of(grouping),
        overview=_overview(groups),
        groups=shown,
        rest=f"<h2>In no group</h2>{rest}" if rest else "",
    )
    atomic_files.write_text(path, text)


_TITLES, _LEFT = ("typical", "doubtful"), ("left", -1)


def _sections(grouping):
    """Pairs of what is shown, and the places of its inputs."""
    for k, one in enumerate(grouping.groups[:_MOST_GROUPS]):
        rows = one.members
        yield (_TITLES[0], k), rows[:_TYPICAL].tolist()
        yield (_TITLES[1], k), rows[_TYPICAL:][-_DOUBTFUL:][::-1].tolist()
    left = np.flatnonzero(grouping.group < 0)
    # Evenly, as there is no order.
    step = max(-(-len(left) // _IN_NONE), 1)
    yield _LEFT, left[::step].tolist()


def _said(group: Group) -> str:
    said = f"{group.size:,} inputs, tightness {group.tightness:.2f}"
    if group.nearest_class is not None:
        name, share = _nearest(group)
        said += f"; nearest known class: {name} ({share})"
    return said


def _nearest(group):
    """The nearest known class and its share, where they are known."""
    if group.nearest_class is None:
        return "–", "–"
    return html.escape(str(group.nearest_class)), f"{group.nearest_share:.0%}"


def _overview(groups):
    if not groups:
        return ""
    rows = [
        (
            f'<a href="#group{k}">{k}</a>' if k < _MOST_GROUPS else str(k),
            f"{one.size:,}",
            f"{one.tightness:.2f}",
            *_nearest(one),
        )
        for k, one in enumerate(groups)
    ]
    columns = ["group", "inputs", "tightness", "nearest known class", "share"]
    return page.scrolled(page.table(columns, rows), "Groups")


def _inputs(rows, names, strength, inputs):
    """Inputs side by side, or one below the other where they are no images."""
    if not rows:
        return ""
    found = [(row, inputs.get(row)) for row in rows]
    if any(hasattr(shown, "convert") for _, shown in found):
        cells = "".join(
            f'<div class="picture">{_picture(shown, names[row])}'
            f"{_strength(strength[row])}{html.escape(names[row])}</div>"
            for row, shown in found
        )
        return f'<div class="pictures">{cells}</div>'
    cells = [
        (_text(shown), f"{strength[row]:.2f}", html.escape(names[row]))
        for row, shown in found
    ]
    table = page.table(["input", "strength", "name"], cells)
    return page.scrolled(table, "Inputs")


def _strength(value):
    return f"{value:.2f}<br>" if value else ""


def _picture(picture, name):
    if picture is None:
        return "unreadable<br>"
    # Of few pixels, each is to be seen.
    draw = page.png if max(picture.size) <= _FEW_PIXELS else page.jpeg
    source = draw(picture)
    return f'<img alt="{html.escape(name)}" src="{source}">'


def _text(value):
    if value is None:
        return "unreadable"
    if isinstance(value, str):
        more = "..." * (len(value) > _LONGEST_TEXT)
        return html.escape(value[:_LONGEST_TEXT]) + more
    numbers = np.ravel(value)
    said = " ".join(f"{x:.4g}" for x in numbers[:_NUMBERS])
    return said + f" ... ({numbers.size} numbers)" * (numbers.size > _NUMBERS)
