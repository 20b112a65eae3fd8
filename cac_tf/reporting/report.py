# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs no other file."""

import base64
import html
import importlib.resources
import io
import string

import numpy as np
import PIL.Image

from cac_tf import atomic_files
from cac_tf.reporting import figures
from cac_tf.reporting.threshold import threshold_section

_MOST_PICTURES = 24
_PICTURE_SIZE = 72


def write_report(
    path, evaluation, dataset, config=None, centres=None, history=()
):
    """Writes the report of an evaluated model.

    Args:
        path: of the HTML file.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
        config: the run's `config.json`: settings and environment; None: the
            page does not say.
        centres: (N, N) class centres in force, for the picture of a logit
            space of three dimensions; None: there is none.
        history: one dict of logs per epoch of training; may be empty.
    """
    config = config or {"settings": {}, "environment": {}}
    folder = importlib.resources.files("cac_tf.reporting")
    template = string.Template(
        (folder / "report.html").read_text(encoding="utf-8")
    )
    measures = evaluation.metrics
    pictures = Pictures(evaluation, dataset)
    title = f"{dataset.name}: {len(dataset.class_names)} known classes"
    if dataset.trial is not None:
        title += f", trial {dataset.trial} of {dataset.split_family}"
    page = template.substitute(
        title=html.escape(title),
        summary=_summary(measures),
        classes=_classes(dataset),
        notes=_notes(dataset.notes),
        numbers=_numbers(measures),
        thetas=_thetas(measures),
        scores=_scores(measures),
        threshold=threshold_section(evaluation, pictures, _svg),
        figures=_figures(evaluation, centres, history),
        pictures=_pictures(evaluation, pictures),
        settings=_section("What was run", config["settings"]),
        environment=_section("Where", config["environment"]),
        script=(folder / "threshold.js").read_text(encoding="utf-8"),
    )
    atomic_files.write_text(path, page)


def _percent(value):
    return "–" if value is None else f"{100 * value:.1f} %"


def _number(value):
    return "–" if value is None else f"{value:.4f}"


def _significant(value):
    return "–" if value is None else f"{value:.4g}"


def _summary(measures):
    sentences = [
        f"Of {measures['counts']['known_test']} test images of known classes, "
        f"{_percent(measures['accuracy'])} are classified correctly."
    ]
    if measures["threshold"] is not None:
        sentences.append(
            f"{_at_theta(measures['threshold'])}, "
            f"{_percent(measures['true_positive_rate'])} of the known images "
            "are accepted"
            + (
                "."
                if measures["false_positive_rate"] is None
                else f", and {_percent(1 - measures['false_positive_rate'])} "
                f"of {measures['counts']['unknown_test']} images of unknown "
                "classes are rejected."
            )
        )
    if measures["auroc"] is None:
        sentences.append(
            "There are no unknown classes in the test data: this is a "
            "closed-set evaluation, and it says nothing about rejection."
        )
    return html.escape(" ".join(sentences))


def _at_theta(theta):
    if not isinstance(theta, list):
        return f"At the threshold theta = {theta:.4g}"
    return (
        f"At thresholds theta from {min(theta):.4g} to {max(theta):.4g}, one "
        "for each predicted class"
    )


def _thetas(measures):
    """Theta of each class, where they differ by class."""
    theta = measures["threshold"]
    if not isinstance(theta, list):
        return ""
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{_significant(one)}</td></tr>"
        for name, one in zip(measures["class_names"], theta, strict=True)
    )
    return (
        "<h2>Thresholds by class</h2><table><tr><th>predicted class</th>"
        f"<th>theta</th></tr>{cells}</table>"
    )


def _classes(dataset):
    rows = [("known classes", dataset.class_names)]
    if dataset.unknown_class_names:
        rows.append(("unknown classes", dataset.unknown_class_names))
    return "".join(
        f"<p><b>{len(names)} {kind}:</b> {html.escape(', '.join(names))}</p>"
        for kind, names in rows
    )


def _notes(notes):
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<h2>About the data</h2><ul>{items}</ul>" if notes else ""


def _numbers(measures):
    ccr = measures["ccr"] or {}
    tiles = [
        ("AUROC", _number(measures["auroc"])),
        *_interval_tile(measures),
        ("FPR at TPR 95%", _number(measures["fpr_at_95_tpr"])),
        ("AUPR, unknown positive", _number(measures["aupr_unknown"])),
        ("AUPR, known positive", _number(measures["aupr_known"])),
        ("accuracy", _number(measures["accuracy"])),
        ("OSCR", _number(measures["oscr"])),
        *(
            (f"CCR at FPR {float(rate):.0%}", _number(value))
            for rate, value in ccr.items()
        ),
        ("Bhattacharyya", _number(measures["bhattacharyya"])),
        ("openness", _percent(measures["openness"])),
        *_theta_tile(measures["threshold"]),
        ("known accepted", _percent(measures["true_positive_rate"])),
        ("unknown accepted", _percent(measures["false_positive_rate"])),
        *(
            (name.replace("_", " "), f"{count:,}")
            for name, count in measures["counts"].items()
        ),
    ]
    return "".join(
        f'<div class="tile"><b>{html.escape(value)}</b>'
        f"<span>{html.escape(name)}</span></div>"
        for name, value in tiles
    )


def _interval_tile(measures):
    if measures["intervals"] is None:
        return []
    low, high = measures["intervals"]["auroc"]
    return [("95% interval of AUROC", f"{low:.3f}–{high:.3f}")]


def _theta_tile(theta):
    if isinstance(theta, list):
        return [
            ("smallest threshold of a class", _significant(min(theta))),
            ("largest theta of a class", _significant(max(theta))),
        ]
    return [("theta", _significant(theta))]


def _scores(measures):
    """What the same logits give by other scores, the model's own first."""
    compared = measures["scores"]
    if len(compared) < 2 or measures["auroc"] is None:
        return ""
    rates = list(measures["ccr"])
    header = "".join(
        f"<th>{html.escape(name)}</th>"
        for name in (
            "score",
            "AUROC",
            "FPR at TPR 95%",
            "AUPR",
            "accuracy",
            "OSCR",
            *(f"CCR at FPR {float(rate):.0%}" for rate in rates),
            "µs an image",
        )
    )
    times = measures["microseconds_per_image"]
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(
            f"<td>{_number(value)}</td>"
            for value in (
                values["auroc"],
                values["fpr_at_95_tpr"],
                values["aupr_unknown"],
                values["accuracy"],
                values["oscr"],
                *(values["ccr"][rate] for rate in rates),
            )
        )
        + f"<td>{times[name]:.1f}</td></tr>"
        for name, values in compared.items()
    )
    return (
        f"<h2>Scores</h2><table><tr>{header}</tr>{rows}</table><p>Time after "
        f"the network, which takes {times['network']:.0f} µs an image here."
        "</p>"
    )


def _figures(evaluation, centres, history):
    has_unknown = (~evaluation.is_known).any()
    made = []
    if has_unknown:
        made.append(("ROC curve", figures.roc_figure(evaluation)))
    if has_unknown:
        made.append(("OSCR curve", figures.oscr_figure(evaluation)))
    if history:
        made.append(("Training", figures.training_figure(history)))
    made.append(("Confusion matrix", figures.confusion_figure(evaluation)))
    if evaluation.logits.shape[1] == 3 and centres is not None:
        made.append(
            ("Logit space", figures.logit_space_figure(evaluation, centres))
        )
    return "".join(
        f"<figure><figcaption>{name}</figcaption>{_svg(figure, name)}</figure>"
        for name, figure in made
        if figure is not None
    )


def _svg(figure, name):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<img alt="{name}" src="data:image/svg+xml;base64,{data}">'


class Pictures:
    """The test examples of an evaluation, to be shown.

    Args:
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
    """

    def __init__(self, evaluation, dataset):
        self._evaluation, self._dataset = evaluation, dataset
        self._num_known = dataset.known_test.size

    def pixels(self, row):
        """The example's image, a `PIL.Image`, not larger than it is shown."""
        known, unknown = self._dataset.known_test, self._dataset.unknown_test
        if row < self._num_known:
            image = known.images[row]
        else:
            image = unknown.images[row - self._num_known]
        pixels = np.clip(np.rint(image), 0, 255).astype("uint8")
        if pixels.shape[-1] not in (3, 4):
            pixels = pixels[..., 0]
        picture = PIL.Image.fromarray(pixels)
        if max(picture.size) > 2 * _PICTURE_SIZE:
            picture.thumbnail((2 * _PICTURE_SIZE, 2 * _PICTURE_SIZE))
        return picture

    def truth(self, row):
        """The name of the example's own class."""
        if row < self._num_known:
            return self._dataset.class_names[self._evaluation.labels[row]]
        label = self._evaluation.unknown_labels[row]
        return self._dataset.unknown_class_names[label]

    def answer(self, row):
        """The name of the predicted class."""
        return self._dataset.class_names[
            self._evaluation.predicted_class_id[row]
        ]


def _pictures(evaluation, pictures):
    """The errors of each kind, those nearest to theta first."""
    is_known, is_correct = evaluation.is_known, evaluation.is_correct
    accepted = evaluation.is_accepted
    sections = []
    if accepted is None:
        sections.append(
            ("Known, taken for another class", is_known & ~is_correct)
        )
    else:
        is_wrong = accepted & ~is_correct
        sections += [
            ("Unknown, accepted as known", ~is_known & accepted),
            ("Known, rejected as unknown", is_known & ~accepted),
            ("Known, accepted as another class", is_known & is_wrong),
        ]
    return "".join(
        _picture_section(name, np.flatnonzero(chosen), evaluation, pictures)
        for name, chosen in sections
    )


def _picture_section(name, rows, evaluation, pictures):
    theta = evaluation.metrics["threshold"] or 0.0
    if isinstance(theta, list):
        theta = np.array(theta)[evaluation.predicted_class_id[rows]]
    rows = rows[np.argsort(np.abs(evaluation.unknown_score[rows] - theta))]
    shown = rows[:_MOST_PICTURES]
    cells = "".join(
        f'<div class="picture"><img alt="" src="{_png(pictures.pixels(row))}">'
        f"<span>{html.escape(pictures.truth(row))} → "
        f"{html.escape(pictures.answer(row))}<br>"
        f"score {_significant(evaluation.unknown_score[row])}</span></div>"
        for row in shown
    )
    count = f"{len(rows)}"
    if len(rows) > len(shown):
        count += f", the {len(shown)} nearest to theta shown"
    return (
        f"<h3>{html.escape(name)} ({count})</h3>"
        f'<div class="pictures">{cells or "<p>none</p>"}</div>'
    )


def _png(picture):
    buffer = io.BytesIO()
    picture.save(buffer, format="png")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/png;base64,{data}"


def _section(title, values):
    rows = _rows(values)
    return f"<h2>{title}</h2><table>{rows}</table>" if rows else ""


def _rows(values, prefix=""):
    rows = []
    for name, value in values.items():
        if isinstance(value, dict):
            rows.append(_rows(value, f"{prefix}{name}."))
        elif value is not None:
            rows.append(
                f"<tr><td>{html.escape(prefix + name)}</td>"
                f"<td>{html.escape(str(value))}</td></tr>"
            )
    return "".join(rows)
