# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML page that needs no other file."""

import html
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.counted import counted
from cac_tf.reporting import alt_texts
from cac_tf.reporting import figures
from cac_tf.reporting import page
from cac_tf.reporting.measures import NOT_MEASURED
from cac_tf.reporting.measures import explained
from cac_tf.reporting.measures import meaning
from cac_tf.reporting.measures import percent
from cac_tf.reporting.measures import rows_of
from cac_tf.reporting.measures import score_rows
from cac_tf.reporting.measures import significant
from cac_tf.reporting.measures import unknown_set_rows
from cac_tf.reporting.paper_figures import logit_spaces_figure
from cac_tf.reporting.sheets import Sheet
from cac_tf.reporting.sheets import as_picture
from cac_tf.reporting.sheets import sheet_section
from cac_tf.reporting.threshold import threshold_section
from cac_tf.reporting.verdict import verdict

_MOST_PICTURES = 24
_PICTURE_SIZE = 72
_LONGEST_TEXT = 200


def write_report(
    path: Path,
    evaluation: Any,
    dataset: Any,
    config: Mapping[str, Any] | None = None,
    centers: ArrayLike | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    sheets: Sequence[Sheet] = (),
    model: Path = ".",
) -> None:
    """Writes the report of an evaluated model.

    Args:
        path: path of the HTML file.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` used for the evaluation.
        config: the run's `config.json`: settings and environment; None: the
            page omits them.
        centers: (N, N) current class centers, for the picture of a
            three-dimensional logit space; None: no picture.
        history: one dict of logs per epoch of training; may be empty.
        sheets: additional pictures, each with its heading.
        model: value of `--model` in the command that the page offers to copy:
            the model's folder or file, relative to the page's folder.
    """
    config = config or {"settings": {}, "environment": {}}
    measures = evaluation.metrics
    pictures = Pictures(evaluation, dataset)
    title = _title(dataset, config["settings"])
    text = page.filled(
        "report.html",
        title=html.escape(title),
        summary=html.escape(" ".join(verdict(measures))),
        classes=_classes(dataset, measures),
        notes=_notes(dataset.notes),
        numbers=_numbers(measures) + _decisions(evaluation, dataset),
        thresholds=_thresholds(measures),
        scores=_scores(measures) + unknown_sets_section(measures),
        threshold=threshold_section(evaluation, pictures, model),
        figures=_figures(evaluation, centers, history),
        pictures=_pictures(evaluation, pictures),
        sheets="".join(map(sheet_section, sheets)),
        settings=page.section("Configuration", config["settings"]),
        environment=page.section("Environment", config["environment"]),
        script=page.resource("threshold.js"),
    )
    atomic_files.write_text(path, text)


def _title(dataset, settings):
    """What was trained, by which method, on which data."""
    network = settings.get("recipe", {}).get("network")
    method = settings.get("method")
    made = [os.path.basename(network)] if network else []
    made += [f"trained by {method}"] if method else []
    title = f"{dataset.name}: {' '.join(made)}{'; ' if made else ''}"
    title += f"{len(dataset.class_names)} known classes"
    if dataset.unknown_class_names:
        title += f", {len(dataset.unknown_class_names)} unknown"
    if dataset.trial is not None:
        title += f" ({dataset.split_family}, trial {dataset.trial})"
    return title


def _thresholds(measures):
    """The threshold of each class, where they differ by class."""
    threshold = measures["threshold"]
    if not isinstance(threshold, list):
        return ""
    rows = [
        (html.escape(name), significant(one))
        for name, one in zip(measures["class_names"], threshold, strict=True)
    ]
    table = page.table(["predicted class", "threshold"], rows)
    return f"<h2>Thresholds by class</h2>{table}"


def _classes(dataset, measures):
    rows = [("known class", dataset.class_names)]
    enrolled = measures.get("enrolled_classes")
    if enrolled:
        trained = [one for one in dataset.class_names if one not in enrolled]
        examples = [
            f"{one} ({counted(n, 'example')})" for one, n in enrolled.items()
        ]
        rows = [("trained class", trained), ("enrolled class", examples)]
    if dataset.unknown_class_names:
        rows.append(("unknown class", dataset.unknown_class_names))
    return "".join(
        f"<p><b>{counted(len(names), kind)}:</b> "
        f"{html.escape(', '.join(names))}</p>"
        for kind, names in rows
    )


def _notes(notes):
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<h2>About the data</h2><ul>{items}</ul>" if notes else ""


def _numbers(measures):
    """A table: each number, and what it means."""
    rows = [
        (html.escape(name), value, meaning(name))
        for name, value in rows_of(measures)
    ]
    table = page.table(["number", "value", "meaning"], rows)
    note = ""
    if measures["threshold"] is not None:
        note = (
            "<p>These numbers and the near misses below always use the "
            "model's own threshold.</p>"
        )
    return note + page.scrolled(table, "Numbers")


def _inputs(measures):
    """What the inputs are, in a word."""
    return measures.get("inputs", "images")


def _decisions(evaluation, dataset):
    """What is accepted of each class; precision and recall of each decision."""
    measures = evaluation.metrics
    found = measures.get("by_class")
    if not found:
        return ""
    rows = []
    for name, own in found.items():
        of_class = _rows_of_class(evaluation, dataset, name)
        rows.append(
            (
                html.escape(name),
                own["support"],
                percent(evaluation.is_accepted[of_class].mean())
                if of_class.any()
                else NOT_MEASURED,
                *(f"{own[key]:.3f}" for key in ("precision", "recall", "f1")),
            )
        )
    for label, name in enumerate(dataset.unknown_class_names):
        of_class = evaluation.unknown_labels == label
        if of_class.any():
            accepted = percent(evaluation.is_accepted[of_class].mean())
            nothing = [NOT_MEASURED] * 3
            name = f"unknown: {html.escape(name)}"
            rows.append((name, of_class.sum(), accepted, *nothing))
    inputs = _inputs(measures)
    columns = ["class", inputs, "accepted", "precision", "recall", "F1"]
    table = page.scrolled(page.table(columns, rows), "Classes")
    return (
        f"<h2>Classes</h2>{table}<p>Decisions at the model's own threshold. "
        f"Accepted: as any known class. Precision: fraction of the {inputs} "
        "assigned to a class that belong to it. Recall: fraction of a class "
        "that is assigned to it.</p>"
    )


def _rows_of_class(evaluation, dataset, name):
    """(n,) bool: the rows of a known class, or of all the unknown ones."""
    if name in dataset.class_names:
        return evaluation.labels == list(dataset.class_names).index(name)
    return ~evaluation.is_known


def _scores(measures):
    """What other scores give on the same images."""
    compared = score_rows(measures)
    if compared is None:
        return ""
    titles, rows = compared
    for cells in rows:
        if cells[0] == measures["score"]:
            cells[0] += " (in use)"
            cells[:] = [f"<strong>{cell}</strong>" for cell in cells]
    columns = ["score", *map(explained, titles)]
    table = page.scrolled(page.table(columns, rows), "Scores")
    return (
        f"<h2>Scores</h2>{table}<p>All scores use the same network and the "
        f"same {_inputs(measures)}. Times do not include the network, which "
        f"takes {measures['microseconds_per_image']['network']:.0f} µs per "
        "input here.</p>"
    )


def unknown_sets_section(measures):
    """AUROC of each score on each further set of unknown images, or ""."""
    found = unknown_set_rows(measures)
    if found is None:
        return ""
    sets, rows = found
    for cells in rows:
        cells[0] = html.escape(cells[0])
    table = page.table(["AUROC", *map(html.escape, sets)], rows)
    return f"<h2>Unknown inputs by set</h2>{page.scrolled(table, 'Sets')}"


def _trainings(history):
    """Captions and the epochs of each training of a run."""
    found = figures.trainings(history)
    for name, epochs in found.items():
        which = f": {name.replace('_', ' ')}" if len(found) > 1 else ""
        yield html.escape(f"Training{which}"), epochs


def _figures(evaluation, centers, history):
    made = []
    for caption, epochs in _trainings(history):
        made.append(
            (
                *(caption, figures.training_figure(epochs)),
                alt_texts.of_training(epochs),
            )
        )
    names = evaluation.metrics["class_names"]
    # A class without a logit is one that was enrolled.
    has_three = len(names) == evaluation.logits.shape[1] == 3
    if has_three and centers is not None:
        shown = {**evaluation.arrays(), "class_names": names}
        figure = logit_spaces_figure({"": {**shown, "centers": centers}})
        made.append(
            ("Logit space", figure, alt_texts.of_logit_space(evaluation))
        )
    drawn = "".join(
        f"<figure><figcaption>{name}</figcaption>{page.svg(figure, alt)}"
        "</figure>"
        for name, figure, alt in made
    )
    if not made:
        return ""
    return f'<h2>Figures</h2><div class="figures">{drawn}</div>'


class Pictures:
    """The test examples of an evaluation, to be shown.

    Args:
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` used for the evaluation.
    """

    def __init__(self, evaluation, dataset):
        self._evaluation, self._dataset = evaluation, dataset
        self.unknown_class_names = dataset.unknown_class_names

    def _place(self, row):
        """The part of the data, the row there, and the class's name."""
        dataset, known = self._dataset, self._dataset.known_test
        if row < known.size:
            label = self._evaluation.labels[row]
            return known, row, dataset.class_names[label]
        label = self._evaluation.unknown_labels[row]
        name = dataset.unknown_class_names[label]
        return dataset.unknown_test, row - known.size, name

    @property
    def are_there(self):
        """Whether the examples are images; others are shown by their names."""
        return self._dataset.holds_images

    def pixels(self, row):
        """The example's image, a `PIL.Image`, not larger than it is shown."""
        examples, place, _ = self._place(row)
        picture = as_picture(examples.images[place])
        if max(picture.size) > 2 * _PICTURE_SIZE:
            picture.thumbnail((2 * _PICTURE_SIZE, 2 * _PICTURE_SIZE))
        return picture

    def name(self, row):
        """The text of the example, or the name of its file.

        "" where the data have none.
        """
        examples, place, _ = self._place(row)
        if self._dataset.kind_of_inputs == "texts":
            text = examples.images[place]
            return text[:_LONGEST_TEXT] + "..." * (len(text) > _LONGEST_TEXT)
        return "" if examples.names is None else str(examples.names[place])

    def truth(self, row):
        """The name of the example's own class."""
        return self._place(row)[-1]

    def answer(self, row):
        """The name of the predicted class."""
        return self._dataset.class_names[
            self._evaluation.predicted_class_id[row]
        ]


def _pictures(evaluation, pictures):
    """The errors of each kind, those nearest to the threshold first."""
    is_known, is_correct = evaluation.is_known, evaluation.is_correct
    accepted = evaluation.is_accepted
    sections = []
    if accepted is None:
        sections.append(("Known, misclassified", is_known & ~is_correct))
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
    scores = evaluation.unknown_score[rows]
    if evaluation.thresholds is None:
        order, first = np.argsort(scores), "with the lowest scores"
    else:
        margins = np.abs(scores - evaluation.thresholds[rows])
        order, first = np.argsort(margins), "nearest to the threshold"
    rows = rows[order]
    shown = rows[:_MOST_PICTURES]
    if not pictures.are_there:
        count = _count(rows, shown, first)
        return _rows_section(name, shown, count, evaluation, pictures)
    cells = "".join(
        f'<div class="picture"><img alt="{html.escape(pictures.truth(row))}" '
        f'src="{page.png(pictures.pixels(row))}">'
        f"{html.escape(pictures.truth(row))} → "
        f"{html.escape(pictures.answer(row))}<br>"
        f"score {significant(evaluation.unknown_score[row])}"
        f"<br>{html.escape(pictures.name(row))}</div>"
        for row in shown
    )
    return (
        f"<h3>{html.escape(name)} ({_count(rows, shown, first)})</h3>"
        f'<div class="pictures">{cells or "<p>none</p>"}</div>'
    )


def _count(rows, shown, first):
    count = f"{len(rows)}"
    if len(rows) > len(shown):
        count += f", {len(shown)} {first} shown"
    return count


def _rows_section(name, rows, count, evaluation, pictures):
    """The errors of one kind as a table, where inputs are no images."""
    cells = []
    for row in rows:
        score = significant(evaluation.unknown_score[row])
        texts = (pictures.name(row), pictures.truth(row), pictures.answer(row))
        cells.append((*map(html.escape, texts), score))
    table = page.table(["input", "true class", "answer", "score"], cells)
    text = page.scrolled(table, name) if cells else "<p>none</p>"
    return f"<h3>{html.escape(name)} ({count})</h3>{text}"
