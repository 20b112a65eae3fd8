# SPDX-License-Identifier: Apache-2.0
"""What a person reads on the terminal while a binary works, and afterwards."""

import os
import shlex
import shutil
import sys

from cac_tf import reporting
from cac_tf.plain_text import for_terminal
from cac_tf.reporting.measures import score_rows
from cac_tf.reporting.measures import unknown_set_rows


def say(*lines, file=None):
    r"""Prints lines, in which names of users' data are nothing but text.

    Every program's lines for a person go through here.

    Args:
        *lines: texts. The end of a line inside of one is shown as `\n`.
        file: standard output by default.

    Example:

    >>> say("unknown classes: cat\x1b[2J, dog")
    unknown classes: cat\x1b[2J, dog
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
    elif kind == "rates":
        measure, rates, chosen = values
        draws = ", ".join(f"{rate:.1%}" for rate in rates)
        say(
            f"--maximize={measure}: accepts {chosen:.1%} of known inputs, the "
            f"mean over {draws} with known classes left out"
        )
    elif kind == "computed":
        done, total = values
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            line = f"\rfrozen network: {done:,} of {total:,} images"
            print(line, end=end, file=sys.stderr, flush=True)
    elif kind == "callbacks":
        _, epochs, steps = values
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
            shown = ", ".join(f"{one:.4g}" for one in value) + " (per class)"
        else:
            shown = "-" if value is None else f"{value:.4g}"
        say(f"{name.replace('_', ' '):>20}  {shown}")
    if measures["split_family"] == "custom":
        # No published split names them: they belong to the result.
        names = ", ".join(measures["unknown_class_names"])
        say(f"{'unknown classes':>20}  {names}")
    if compared := score_rows(measures):
        network = measures["microseconds_per_image"]["network"]
        _print_table(
            *compared,
            caption=f"µs: time after the network, which takes {network:.0f}",
        )
    if sets := unknown_set_rows(measures):
        _print_table(*sets, title="AUROC by set of unknown inputs")


def _print_table(titles, rows, **texts):
    rows = [(row, False) for row in rows]
    reporting.print_table(["score"], titles, rows, **texts)


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
