# SPDX-License-Identifier: Apache-2.0
"""cac-evaluate: evaluates a saved open-set classifier on test data.

Example: cac-evaluate --model=runs/digits/model.keras --output_dir=runs/again

Without --dataset, it uses the data that the model was trained on, as recorded
in config.json next to it. Writes metrics.json, scores.npz and report.html, and
model.keras if the evaluated model differs from --model.
"""

import os

from cac_tf import experiments
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal

_FIRST = (
    *("model", "output_dir", "dataset", "recenter", "score", "scores"),
    *("true_positive_rate", "threshold", "unknown_data", "overwrite"),
)


def define_flags(values):
    """Defines the flags of `cac-evaluate`."""
    command_line.define_data_flags(values)
    command_line.define_model_flag(values)
    flag_kinds.define_text(
        values,
        "output_dir",
        None,
        "Folder for the results.",
        required=True,
    )
    command_line.define_options(values, experiments.EvaluationConfig, "score")
    flag_kinds.define_switch(
        values,
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir.",
    )


def _data(values):
    if values.dataset is not None:
        return command_line.data_settings(values)
    given = [
        f"--{name}" for name in command_line.DATA_FLAGS if values[name].present
    ]
    if given:
        raise ValueError(f"{', '.join(given)} has no effect without --dataset.")
    return None


def main(values):
    """Loads model and data, evaluates, reports."""
    config = experiments.EvaluationConfig(
        command_line.model_file(values),
        data=_data(values),
        **command_line.given_options(values, experiments.EvaluationConfig),
    )
    quiet.load("keras")
    evaluated = experiments.evaluate_saved(
        config,
        values.output_dir,
        overwrite=values.overwrite,
        tell=terminal.tell,
    )
    folder = evaluated.folder
    own = os.path.exists(folder.file("model.keras"))
    model = folder.path if own else values.model
    export = terminal.command(
        "cac-export", f"--model={model}", "--output_dir=serving"
    )
    terminal.print_results(
        evaluated.evaluation.metrics, folder, {"Export this model": export}
    )


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__, first=_FIRST)


if __name__ == "__main__":
    run()
