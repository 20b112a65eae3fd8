# SPDX-License-Identifier: Apache-2.0
"""The part of a report that follows a threshold which one can move."""

import base64
import html
import io
import json
import shlex

import numpy as np
import PIL.Image

from cac_tf.reporting import alt_texts
from cac_tf.reporting import figures
from cac_tf.reporting import page

# Pictures of known and of unknown examples each, evenly over their scores.
_MOST_TILES = 200
_LARGEST_TILE = 64
_TILES_IN_A_ROW = 20
# Smaller ones are drawn in few colors: PNG keeps them sharp, and is small.
_SMALLEST_JPEG = 17

_BY_CLASS = (
    "<p>The model has a separate threshold for each class, and the page "
    "starts with these; the line marks their median. Moving it sets a single "
    "threshold for all classes and shows the command that exports the model "
    "with it.</p>"
)
_NOT_SET = (
    "<p>The model has no threshold. The page starts with the median of the "
    "unknown scores.</p>"
)
_TILES = (
    (
        "known-accepted",
        "known accepted",
        "Fraction of the known test inputs that are accepted (true-positive "
        "rate), with its 95 % interval.",
    ),
    (
        "right",
        "known accepted as their own class",
        "Fraction of the known test inputs that are accepted and assigned to "
        "their own class (correct classification rate, CCR).",
    ),
    (
        "unknown-accepted",
        "unknown accepted",
        "Fraction of the unknown test inputs that are accepted "
        "(false-positive rate): the errors that the threshold is meant to "
        "prevent.",
    ),
    (
        "threshold",
        "threshold",
        "Inputs with a higher unknown score are rejected.",
    ),
)


def threshold_section(evaluation, pictures, model="."):
    """HTML of all that depends on the threshold.

    Args:
        evaluation: `Evaluation`.
        pictures: `Pictures` of its examples.
        model: where the model lies, seen from the page's folder.

    Returns:
        HTML text. The numbers for the page's script are in it as JSON.
    """
    histogram = figures.score_histogram(evaluation)
    has_unknown = (~evaluation.is_known).any()
    plots = [
        (
            *("histogram", "Unknown scores", histogram),
            alt_texts.of_histogram(evaluation),
        )
    ]
    if has_unknown:
        plots += [
            (
                *("roc", "ROC curve", figures.roc_figure(evaluation)),
                alt_texts.of_roc(evaluation),
            ),
            (
                *("oscr", "OSCR curve", figures.oscr_figure(evaluation)),
                alt_texts.of_oscr(evaluation),
            ),
        ]
    drawn = "".join(_plot(*plot) for plot in plots)
    numbers, sheet = _numbers(evaluation, pictures, histogram)
    numbers["model"] = shlex.quote(str(model))
    # Class names must not end the script.
    text = json.dumps(numbers).replace("<", "\\u003c")
    thresholds = numbers["thresholds"]
    note = _BY_CLASS if len(set(thresholds)) > 1 else ""
    first = "the model's own"
    if evaluation.metrics["threshold"] is None:
        note, first = _NOT_SET, "the median"
    tiles = "".join(
        f'<div class="tile"><b class="{name}"></b><span>'
        f'<abbr title="{html.escape(meaning)}">{label}</abbr></span></div>'
        for name, label, meaning in _TILES
    )
    style = ""
    if sheet:
        style = (
            f"<style>.cut {{ background-image: url({html.escape(sheet)}); }}"
            "</style>"
        )
    return f"""<div id="threshold">{note}
<noscript><p>Without JavaScript, the threshold cannot be moved, and the table
of answers and the pictures near the threshold are missing.</p></noscript>
<div class="control" data-script hidden>
<label for="threshold-slider">threshold</label>
<input id="threshold-slider" type="range" min="0" max="1000" step="1">
<output for="threshold-slider"></output>
<button class="own" type="button">{first}</button></div>
<div class="tiles" data-script hidden>{tiles}</div>
<p class="counts" data-script hidden></p>
<div class="figures">{drawn}</div>
<div data-script hidden>
<p class="export">To export the model with this threshold, run this in the
folder of this page: <code class="command"></code>
<button class="copy" type="button">copy</button>
<span class="copied" role="status"></span></p>
<h3>Nearest to the threshold</h3>
<p>True class → predicted class; <span class="known">known</span> with a solid
frame, <span class="unknown">unknown</span> with a dashed one.</p>
<p><b>Accepted</b></p><div class="accepted beside pictures"></div>
<p><b>Rejected</b></p><div class="rejected beside pictures"></div>
<h3>Answers</h3>
<p class="sentence"></p>
<p>Each row shows the answers for one true class; a deeper color means a
larger fraction. <span class="known">Right answers</span> and
<span class="unknown">wrong ones</span>.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Table of answers">
<table class="answers"><thead></thead><tbody></tbody></table></div>
</div>
<script type="application/json" id="scores">{text}</script>
{style}</div>"""


def _plot(name, caption, figure, alt):
    """A figure with a mark that the script moves."""
    drawn = page.svg(figure, alt)
    (axes,) = figure.axes
    # Only drawn, a figure knows where its axes are.
    place = axes.get_position()
    frame = {
        "left": place.x0,
        "right": place.x1,
        "top": 1.0 - place.y1,
        "bottom": 1.0 - place.y0,
        "x": axes.get_xlim(),
        "y": axes.get_ylim(),
    }
    is_histogram = name == "histogram"
    kinds = "plot drag" if is_histogram else "plot"
    mark = "line" if is_histogram else "point"
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<div class="{kinds}" data-name="{name}" '
        f"data-axes='{json.dumps(frame)}'>{drawn}"
        f'<div class="{mark}" aria-hidden="true"></div></div></figure>'
    )


def _numbers(evaluation, pictures, histogram):
    """What the script reads, and the sheet of pictures."""
    rows = _chosen(evaluation)
    sheet = ""
    if pictures.are_there:
        sheet = _sheet([pictures.pixels(row) for row in rows])
    known, scores = evaluation.is_known, evaluation.unknown_score
    names = evaluation.metrics["class_names"]
    threshold = evaluation.metrics["threshold"]
    if threshold is None:
        threshold = np.median(scores)
    thresholds = np.broadcast_to(threshold, len(names))
    order = np.argsort(scores, kind="stable")
    unknown = len(names) + evaluation.unknown_labels
    truth = np.where(known, evaluation.labels, unknown)
    (axes,) = histogram.axes
    numbers = {
        "threshold": _short(np.median(thresholds)),
        "thresholds": [_short(one) for one in thresholds],
        "classes": list(names),
        "unknown_classes": list(pictures.unknown_class_names),
        "score": [_short(score) for score in scores[order]],
        "truth": truth[order].tolist(),
        "answer": evaluation.predicted_class_id[order].tolist(),
        "axis": {
            "low": axes.get_xlim()[0],
            "high": axes.get_xlim()[1],
            "logarithmic": axes.get_xscale() == "log",
        },
        "tiles": [
            {
                "score": _short(scores[row]),
                "known": bool(known[row]),
                "truth": pictures.truth(row),
                "answer": int(evaluation.predicted_class_id[row]),
                "name": pictures.name(row),
            }
            for row in rows
        ],
        # Of the sheet of pictures; 0 where inputs are no images.
        "columns": _TILES_IN_A_ROW if pictures.are_there else 0,
    }
    return numbers, sheet


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
    """All pictures as one, as a data URI."""
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
    return f"data:image/{kind};base64,{data}"
