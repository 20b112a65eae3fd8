# SPDX-License-Identifier: Apache-2.0
"""The histogram of a report, with a threshold that one can drag."""

import base64
import html
import io
import json

import numpy as np
import PIL.Image

from cac_tf.reporting import figures

# Pictures of known and of unknown examples each, evenly over their scores.
_MOST_TILES = 200
_LARGEST_TILE = 48
_TILES_IN_A_ROW = 20
# Smaller ones are drawn in few colours: PNG keeps them sharp, and is small.
_SMALLEST_JPEG = 17

_BY_CLASS = (
    '<p class="by-class">The model\'s thresholds differ by class. Here is one '
    "for all classes; it starts at their median, so the counts are not the "
    "model's own.</p>"
)


def threshold_section(evaluation, pictures, figure_html):
    """HTML of the histogram, the counts and the pictures beside theta.

    Args:
        evaluation: `Evaluation`.
        pictures: `Pictures` of its examples.
        figure_html: matplotlib figure and name -> an `<img>` tag.

    Returns:
        HTML text. The numbers for the page's script are in it as JSON.
    """
    figure = figures.score_histogram(evaluation)
    image = figure_html(figure, "Unknown scores")
    (axes,) = figure.axes
    # Only drawn, a figure knows where its axes are.
    place = axes.get_position()
    rows = _chosen(evaluation)
    sheet, size = _sheet([pictures.pixels(row) for row in rows])
    known = evaluation.is_known
    scores = evaluation.unknown_score
    theta = evaluation.metrics["threshold"]
    by_class = isinstance(theta, list)
    if theta is None:
        theta = np.median(scores)
    elif by_class:
        theta = np.median(theta)
    numbers = {
        "theta": _short(theta),
        "known": _sorted(scores[known]),
        "right": _sorted(scores[known & evaluation.is_correct]),
        "unknown": _sorted(scores[~known]),
        "axis": {
            "left": place.x0,
            "right": place.x1,
            "top": 1.0 - place.y1,
            "bottom": 1.0 - place.y0,
            "low": axes.get_xlim()[0],
            "high": axes.get_xlim()[1],
            "logarithmic": axes.get_xscale() == "log",
        },
        "tiles": [
            {
                "score": _short(scores[row]),
                "known": bool(known[row]),
                "truth": pictures.truth(row),
                "answer": pictures.answer(row),
            }
            for row in rows
        ],
        "size": size,
        "columns": _TILES_IN_A_ROW,
    }
    # Class names must not end the script.
    text = json.dumps(numbers).replace("<", "\\u003c")
    return (
        f'<div id="threshold"><div class="plot">{image}'
        '<div class="line" aria-hidden="true"></div></div>'
        f'<div class="told">{_BY_CLASS if by_class else ""}<label>threshold '
        '<input type="range" min="0" max="1000" step="any"></label> '
        '<output class="value"></output>'
        '<p class="counts"></p><p class="sides">Pictures nearest to it: '
        '<b>accepted</b></p><div class="accepted tiles"></div>'
        '<p class="sides"><b>rejected</b></p><div class="rejected tiles"></div>'
        "</div></div>"
        f'<script type="application/json" id="scores">{text}</script>'
        f"<style>.tile-picture {{ background-image: url({html.escape(sheet)});"
        " }</style>"
    )


def _sorted(scores):
    return [_short(score) for score in np.sort(scores)]


def _short(score):
    """The shortest number that is this float32."""
    return float(str(np.float32(score)))


def _chosen(evaluation):
    """Rows of examples, evenly over the scores of known and of unknown."""
    chosen = []
    for is_member in (evaluation.is_known, ~evaluation.is_known):
        rows = np.flatnonzero(is_member)
        rows = rows[np.argsort(evaluation.unknown_score[rows], kind="stable")]
        if len(rows) > _MOST_TILES:
            places = np.linspace(0, len(rows) - 1, _MOST_TILES)
            rows = rows[places.round().astype(int)]
        chosen += rows.tolist()
    return chosen


def _sheet(pictures):
    """All pictures as one, as a data URI, and the size of each in it."""
    size = min(_LARGEST_TILE, max(max(p.size) for p in pictures))
    number_of_rows = -(-len(pictures) // _TILES_IN_A_ROW)
    sheet = PIL.Image.new(
        "RGB", (size * _TILES_IN_A_ROW, size * number_of_rows), "white"
    )
    for index, picture in enumerate(pictures):
        picture = picture.convert("RGB")
        picture.thumbnail((size, size))
        row, column = divmod(index, _TILES_IN_A_ROW)
        sheet.paste(picture, (size * column, size * row))
    buffer = io.BytesIO()
    kind = "jpeg" if size >= _SMALLEST_JPEG else "png"
    sheet.save(buffer, kind, quality=85, subsampling=0)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/{kind};base64,{data}", size
