# SPDX-License-Identifier: Apache-2.0
"""cac-evaluate: evaluates a saved open-set classifier on test data.

Example: cac-evaluate --model=runs/digits/model.keras --output_dir=runs/again

Without --dataset, the data are those that the model was trained on, read
from config.json beside it. Writes metrics.json, scores.npz and report.html.
"""

import os

from absl import flags

from cac_tf.evaluation import evaluate
from cac_tf.models import load_model
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import read_config
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-evaluate`."""
    command_line.define_data_flags(values)
    flags.DEFINE_string("model", None, "The .keras file.", flag_values=values)
    flags.DEFINE_string(
        "output_dir", None, "Folder for the results.", flag_values=values
    )
    flags.DEFINE_float(
        "true_positive_rate",
        None,
        "Calibrate theta anew on the known validation images. Default: the "
        "model's own theta.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir.",
        flag_values=values,
    )
    flags.mark_flags_as_required(["model", "output_dir"], flag_values=values)


def _data_settings(values):
    if values.dataset is not None:
        return command_line.data_settings(values)
    given = [
        f"--{name}" for name in command_line.DATA_FLAGS if values[name].present
    ]
    if given:
        raise ValueError(f"{', '.join(given)} needs --dataset too.")
    try:
        settings = read_config(os.path.dirname(values.model))["settings"]
        return {name: settings[name] for name in command_line.DATA_FLAGS}
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"There is no run's config.json beside {values.model}, so the "
            "data must be named: pass --dataset."
        ) from error


def main(values):
    """Loads model and data, evaluates, reports."""
    if os.path.realpath(values.output_dir) == os.path.realpath(
        os.path.dirname(values.model)
    ):
        raise ValueError(
            "--output_dir is the folder of the model itself, whose results "
            "would be lost; choose another one."
        )
    model = load_model(values.model)
    data_settings = _data_settings(values)
    dataset = command_line.load_dataset(data_settings)
    if values.true_positive_rate is not None:
        model.calibrate(
            dataset.validation.images,
            true_positive_rate=values.true_positive_rate,
        )
    evaluation = evaluate(model, dataset)
    folder = RunFolder.open(
        values.output_dir,
        {
            **data_settings,
            "model": values.model,
            "true_positive_rate": values.true_positive_rate,
        },
        overwrite=values.overwrite,
    )
    command_line.write_results(folder, evaluation, dataset, model.centres)


def run():
    """Entry point of the console script."""
    command_line.run(define_flags, main, __doc__)


if __name__ == "__main__":
    run()
