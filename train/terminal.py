# SPDX-License-Identifier: Apache-2.0
"""What a person reads on the terminal while a binary works, and afterwards."""

import os
import shlex
import shutil
import sys

from cac_tf import reporting
from cac_tf.plain_text import for_terminal


def say(*lines, file=None):
    r"""Prints lines, in which names of users' data are nothing but text.

    Every program's lines for a person go through here.

    Args:
        *lines: texts. The end of a line inside of one is shown as `\\n`.
        file: standard output by default.

    Example:

    >>> say("unknown classes: cat\\x1b[2J, dog")
    unknown classes: cat\\x1b[2J, dog
    """
    for line in lines:
        print(for_terminal(line), file=file, flush=True)


def command(program, *arguments):
    """A command line of one of the programs that can be pasted.

    A program that is not on the path is named as the running one was, which
    lies beside it; or, without any such file, as a module of Python.
    """
    beside = os.path.join(os.path.dirname(sys.argv[0]), program)
    module = f"cac_tf.train.{program.replace('-', '_')}"
    for words in ([program], [beside]):
        if shutil.which(*words):
            break
    else:
        words = [sys.executable, "-m", module]
    return shlex.join([*words, *arguments])


def tell(kind, *values):
    """Prints what a run reports while it is running."""
    if kind == "note":
        say(f"note: {values[0]}", file=sys.stderr)
    elif kind == "chosen":
        name, separations = values
        for one, value in sorted(separations.items(), key=lambda x: -x[1]):
            say(f"{one:>25}  {value:.4f} from composites of known images")
        say(f"--score=auto chose {name}")
    elif kind == "callbacks":
        name, epochs, steps = values
        return [reporting.TrainingProgress(epochs, steps)]
    elif kind == "begins":
        place, folder = values
        say(f"{place}: {folder}")
    elif kind == "ended":
        say(f"{values[0]}: {_ending(*values[1:])}")
    return None


def _ending(seconds, problem):
    if seconds is None:
        return "finished earlier"
    if problem:
        return f"FAILED after {duration(seconds)}: {problem}"
    return f"done in {duration(seconds)}"


def duration(seconds):
    """E.g. "90 s", "12 min" or "1.7 h"."""
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def print_results(measures, folder, following):
    """Prints the main results of an evaluation, and where all files are.

    Args:
        measures: as `metrics.json` holds them.
        folder: `RunFolder` of the report.
        following: dict from what may come next to how it is done.
    """
    _print_measures(measures)
    _print_places(folder)
    say(*reporting.verdict(measures))
    say(*(f"{what}: {how}" for what, how in following.items()))


def _print_measures(measures):
    for name in (
        "auroc",
        "accuracy",
        "oscr",
        "threshold",
        "true_positive_rate",
        "false_positive_rate",
        "macro_f1",
    ):
        value = measures.get(name)
        if isinstance(value, list):
            shown = ", ".join(f"{one:.4g}" for one in value) + " (by class)"
        else:
            shown = "-" if value is None else f"{value:.4g}"
        say(f"{name.replace('_', ' '):>20}  {shown}")
    if measures["split_family"] == "custom":
        # No published split names them: they belong to the result.
        names = ", ".join(measures["unknown_class_names"])
        say(f"{'unknown classes':>20}  {names}")
    if len(measures["scores"]) > 1 and measures["auroc"] is not None:
        _print_scores(measures)
    _print_unknown_data(measures)


def _print_scores(measures):
    """Prints the results of each score, and its cost."""
    times = measures["microseconds_per_image"]
    reporting.print_table(
        ["score"],
        [
            "AUROC",
            "FPR@95%",
            "AUPR known",
            "AUPR unknown",
            *(f"CCR@{float(rate):.0%}" for rate in measures["ccr"]),
            "OSCR",
            "accuracy",
            "us/image",
        ],
        [
            (
                [
                    name,
                    f"{one['auroc']:.4f}",
                    f"{one['fpr_at_95_tpr']:.4f}",
                    f"{one['aupr_known']:.4f}",
                    f"{one['aupr_unknown']:.4f}",
                    *(f"{value:.4f}" for value in one["ccr"].values()),
                    f"{one['oscr']:.4f}",
                    f"{one['accuracy']:.4f}",
                    f"{times[name]:.2f}",
                ],
                False,
            )
            for name, one in measures["scores"].items()
        ],
        caption=f"us/image: after the network's {times['network']:.0f}",
    )


def _print_unknown_data(measures):
    """Prints AUROC on each set of unknown images, by score."""
    sets = measures.get("unknown_data")
    if not sets:
        return
    own = {"of the data set": measures} if measures["auroc"] is not None else {}
    columns = {**own, **sets}
    lines = [
        (
            [
                name,
                *(
                    f"{one['scores'][name]['auroc']:.4f}"
                    for one in columns.values()
                ),
            ],
            False,
        )
        for name in measures["scores"]
    ]
    accepted = [f"{one['false_positive_rate']:.0%}" for one in columns.values()]
    lines.append((["accepted at the threshold", *accepted], True))
    reporting.print_table(
        ["score"], list(columns), lines, title="AUROC by unknown test images"
    )


def _print_places(folder):
    """Prints where the files are that a run has left."""
    places = {
        "Model": folder.file("model.keras"),
        "Serving folder": folder.serving,
        "Report": folder.file("report.html"),
    }
    for name, path in places.items():
        if os.path.exists(path):
            say(f"{name + ':':<16}{path}")
