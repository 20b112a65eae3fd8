# SPDX-License-Identifier: Apache-2.0
"""Finished runs side by side, as one HTML page."""

import html
import itertools
import re
import typing
from collections.abc import Sequence

from cac_tf import atomic_files
from cac_tf.annotations import Path
from cac_tf.reporting import alt_texts
from cac_tf.reporting import figures
from cac_tf.reporting import page
from cac_tf.reporting.measures import NOT_MEASURED
from cac_tf.reporting.measures import explained
from cac_tf.reporting.measures import number
from cac_tf.reporting.measures import rows_of
from cac_tf.reporting.verdict import verdict

_OTHER_TEST_DATA = (
    "These runs were evaluated on different test inputs or classes, so "
    "differences between their numbers say nothing about their models."
)
_ONE_TRAINING = (
    "Intervals reflect only the random choice of test inputs. A model's "
    "numbers also change with the seed: train several before trusting a "
    "small difference."
)


class ComparedRun(typing.NamedTuple):
    """A finished run, as its folder holds it."""

    name: str
    measures: dict  # metrics.json
    config: dict  # config.json
    history: list  # history.json: a dict for each epoch, or empty
    unknown_score: typing.Any  # (n,), from scores.npz
    labels: typing.Any  # (n,) int, -1 for unknown test inputs


def write_comparison(path: Path, runs: Sequence[ComparedRun]) -> None:
    """Writes a page with runs in columns.

    It has the sentences of each run's verdict, all numbers, the AUROC of each
    score, the settings and the environment that differ, and the runs' ROC
    curves and learning curves over each other. It says where runs were not
    evaluated on the same test inputs.

    Args:
        path: of the HTML file.
        runs: list of `ComparedRun`, each with a name of its own.
    """
    title = "Comparison of runs: " + ", ".join(run.name for run in runs)
    notes = [_ONE_TRAINING]
    if len({_test_data(run) for run in runs}) > 1:
        notes.insert(0, _OTHER_TEST_DATA)
    text = page.filled(
        "comparison.html",
        title=html.escape(title),
        notes="".join(f"<p>{html.escape(note)}</p>" for note in notes),
        verdicts="".join(
            f"<p><b>{html.escape(run.name)}:</b> "
            f"{html.escape(' '.join(verdict(run.measures)))}</p>"
            for run in runs
        ),
        numbers=_numbers(runs),
        scores=_scores(runs),
        differences=_differences(runs),
        figures=_figures(runs),
    )
    atomic_files.write_text(path, text)


def _test_data(run):
    digests = run.config["data"]["sha256"]
    return digests["known_test"], digests.get("unknown_test")


def _table(first, runs, entries):
    """A row for each name, a column for each run; a dash where it has none.

    Args:
        first: head of the names' column.
        runs: list of `ComparedRun`.
        entries: for each run, a dict from name to text.
    """
    names = dict.fromkeys(name for entry in entries for name in entry)
    rows = [
        (
            explained(name),
            *(html.escape(entry.get(name, NOT_MEASURED)) for entry in entries),
        )
        for name in names
    ]
    columns = [first, *(html.escape(run.name) for run in runs)]
    return page.scrolled(page.table(columns, rows), first)


def _numbers(runs):
    entries = []
    for run in runs:
        entry = {"score": run.measures["score"], **dict(rows_of(run.measures))}
        if "epochs" in run.measures:
            entry["epochs"] = str(run.measures["epochs"])
            entry["training time (seconds)"] = str(run.measures["seconds"])
        entries.append(entry)
    return _table("number", runs, entries)


def _scores(runs):
    entries = [
        {
            name: number(values["auroc"])
            for name, values in run.measures["scores"].items()
            if values["auroc"] is not None
        }
        for run in runs
    ]
    if not any(entries):
        return ""
    return f"<h2>AUROC by score</h2>{_table('score', runs, entries)}"


def _differences(runs):
    """What the runs were told, and where they ran, if they differ in it."""
    entries = [
        {
            name: _short(str(value))
            for part in ("settings", "environment")
            for name, value in page.flat(run.config[part]).items()
            if name != "date"
        }
        for run in runs
    ]
    names = dict.fromkeys(name for entry in entries for name in entry)
    different = [
        name
        for name in names
        if len({entry.get(name) for entry in entries}) > 1
    ]
    if not different:
        return "<p>The runs have the same settings and environment.</p>"
    entries = [
        {name: entry.get(name, NOT_MEASURED) for name in different}
        for entry in entries
    ]
    return _table("setting", runs, entries)


def _short(value):
    """The beginning of a digest, which tells it from others; all else whole.

    Example:

    >>> _short("0123456789" * 4), _short("0123456789")
    ('012345678901', '0123456789')
    """
    is_digest = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", value)
    return value[:12] if is_digest else value


def _figures(runs):
    made = []
    with_unknown = [run for run in runs if run.measures["auroc"] is not None]
    if with_unknown:
        aurocs = {run.name: run.measures["auroc"] for run in with_unknown}
        made.append(
            (
                *("ROC curves", figures.roc_curves_figure(with_unknown)),
                alt_texts.of_runs("ROC curves, AUROC", aurocs),
            )
        )
    by_run = {run.name: figures.trainings(run.history) for run in runs}
    trainings = dict.fromkeys(itertools.chain(*by_run.values()))
    for name, caption in (
        ("loss", "Training loss"),
        ("val_accuracy", "Validation accuracy"),
    ):
        for training in trainings:
            trained = {
                run: found[training]
                for run, found in by_run.items()
                if name in found.get(training, [{}])[-1]
            }
            if not trained:
                continue
            if len(trainings) > 1:
                said = f"{caption}: {training.replace('_', ' ')}"
            else:
                said = caption
            last = {run: epochs[-1][name] for run, epochs in trained.items()}
            figure = figures.learning_curves_figure(trained, name)
            alt = alt_texts.of_runs(f"{said} by epoch, final value", last)
            made.append((html.escape(said), figure, alt))
    return "".join(
        f"<figure><figcaption>{caption}</figcaption>{page.svg(figure, alt)}"
        "</figure>"
        for caption, figure, alt in made
    )
