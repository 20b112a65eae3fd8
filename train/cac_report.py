# SPDX-License-Identifier: Apache-2.0
"""cac-report: compares finished runs on one page.

Example: cac-report --compare runs/cac runs/cross_entropy

The page has each run's verdict and numbers, the settings that differ, and their
curves in shared plots. A run is a folder written by cac-train or cac-evaluate.
"""

from cac_tf import experiments
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal


def define_flags(values):
    """Defines the flags of `cac-report`."""
    flag_kinds.define_text(
        values,
        "compare",
        None,
        "Folder of the first run; list the others after it.",
        required=True,
    )
    flag_kinds.define_text(
        values,
        "output",
        "comparison.html",
        "File for the page.",
    )


def main(values, others):
    """Reads the runs and writes the page."""
    quiet.load("keras")
    experiments.compare_runs([values.compare, *others], values.output)
    terminal.say(f"Comparison: {values.output}")
    return 0


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__, takes_inputs=True)


if __name__ == "__main__":
    run()
