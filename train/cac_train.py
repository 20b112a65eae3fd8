# SPDX-License-Identifier: Apache-2.0
"""cac-train: trains, calibrates, evaluates and exports an open-set classifier.

Example: cac-train --dataset=digits --output_dir=runs/digits

Writes model.keras, metrics.json, scores.npz, report.html and serving/1 into
--output_dir. Interrupted, the same command goes on from the last finished
epoch; finished, it says so.
"""

import dataclasses
import shutil
import sys

import keras
from absl import flags

from cac_tf.evaluation import evaluate
from cac_tf.export import write_model_folder
from cac_tf.methods import cac
from cac_tf.methods.presets import preset
from cac_tf.reporting import TrainingProgress
from cac_tf.run_folder import RunFolder
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-train`."""
    command_line.define_data_flags(values)
    command_line.define_recipe_flags(values, cac.Recipe)
    flags.DEFINE_string(
        "output_dir", None, "Folder of the run.", flag_values=values
    )
    flags.DEFINE_integer(
        "seed",
        0,
        "Of everything random; the same seed gives the same weights.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_float(
        "true_positive_rate",
        0.95,
        "Theta keeps this share of the known validation images.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "mixed_bfloat16", "mixed_float16"],
        "Keras dtype policy of the backbone.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir and start afresh.",
        flag_values=values,
    )
    flags.mark_flags_as_required(["dataset", "output_dir"], flag_values=values)


def _recipe(values):
    given = {
        field.name: values[field.name].value
        for field in dataclasses.fields(cac.Recipe)
        if values[field.name].value is not None
    }
    return dataclasses.replace(preset(values.dataset), **given)


def main(values):
    """Runs the whole way, from data to a served model."""
    recipe = _recipe(values)
    if not 0.0 < values.true_positive_rate < 1.0:
        raise ValueError(
            "--true_positive_rate must be in (0, 1); got "
            f"{values.true_positive_rate}."
        )
    keras.config.set_dtype_policy(values.precision)
    data_settings = command_line.data_settings(values)
    settings = {
        **data_settings,
        "method": "cac",
        **dataclasses.asdict(recipe),
        "seed": values.seed,
        "true_positive_rate": values.true_positive_rate,
        "precision": values.precision,
        "backend": keras.backend.backend(),
    }
    if not values.overwrite:
        earlier = RunFolder.find(values.output_dir, settings)
        if earlier and earlier.is_finished:
            print(f"{earlier.path} holds this run, finished.")
            print("To run it again: --overwrite.")
            return
    # What is wrong with data or recipe is found before anything is written.
    dataset = command_line.load_dataset(data_settings)
    model = cac.build_model(dataset, recipe, values.seed)
    folder = RunFolder.open(values.output_dir, settings, values.overwrite)
    steps_per_epoch = -(-dataset.train.size // recipe.batch_size)
    history = cac.train(
        model,
        dataset,
        recipe,
        values.seed,
        folder.checkpoint,
        callbacks=[TrainingProgress(recipe.epochs, steps_per_epoch)],
    )
    model.calibrate(
        dataset.validation.images,
        true_positive_rate=values.true_positive_rate,
    )
    evaluation = evaluate(model, dataset)
    model.save(folder.file("model.keras"))
    if keras.backend.backend() == "tensorflow":
        # What an interrupted attempt left is of this same run.
        shutil.rmtree(folder.serving, ignore_errors=True)
        write_model_folder(model, folder.serving, version=1)
    else:
        print(
            "note: no SavedModel was written, because export needs "
            "TensorFlow. There: cac-export --model="
            f"{folder.file('model.keras')} --output_dir={folder.serving}",
            file=sys.stderr,
        )
    command_line.write_results(
        folder, evaluation, dataset, model.centres, history
    )


def run():
    """Entry point of the console script."""
    command_line.run(
        define_flags,
        main,
        __doc__,
        when_interrupted="The same command goes on from the last finished "
        "epoch.",
    )


if __name__ == "__main__":
    run()
