# SPDX-License-Identifier: Apache-2.0
"""cac-train: trains, calibrates, evaluates and exports an open-set classifier.

Example: cac-train --dataset=cifar10 --trial=0 --output_dir=runs/cifar10

Writes model.keras, metrics.json, scores.npz, report.html and serving/1 into
--output_dir. Interrupted, the same command goes on from the last finished
epoch; finished, it says so.
"""

import os
import re
import shutil
import sys

import keras
from absl import flags

from cac_tf import methods
from cac_tf import scores
from cac_tf.data import dump_arrays
from cac_tf.data import has_class_split
from cac_tf.data.npz_arrays import origin_of
from cac_tf.evaluation import evaluate
from cac_tf.export import write_model_folder
from cac_tf.reporting import TrainingProgress
from cac_tf.run_folder import RunFolder
from cac_tf.run_folder import data_summary
from cac_tf.train import command_line


def define_flags(values):
    """Defines the flags of `cac-train`."""
    command_line.define_data_flags(values)
    command_line.define_recipe_flags(values)
    flags.DEFINE_enum(
        "method",
        "cac",
        methods.names(),
        "How the model is trained.",
        flag_values=values,
    )
    command_line.define_score_flags(values, "Default: the method's, one.")
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder of the run. Default: runs/ and the names of data set, trial "
        "and method.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "dump_arrays",
        None,
        "Write the data to this .npz file instead of training; "
        "--dataset=<that file> then gives the same experiment on a machine "
        "without TensorFlow or the data set.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "seed",
        0,
        "Of everything random; the same seed gives the same weights.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "evaluate_every",
        0,
        "Evaluate on the test data every so many epochs, around anchors, for "
        "a learning curve in history.json and the report; nothing is chosen "
        "by it. 0: only at the end.",
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
    flags.mark_flag_as_required("dataset", flag_values=values)


def _dump(values, data_settings):
    own = {*command_line.DATA_FLAGS, "dump_arrays"}
    ignored = [
        name for name in sorted(_names_of_flags() - own) if values[name].present
    ]
    if ignored:
        raise ValueError(
            f"--{ignored[0]} has no effect with --dump_arrays, which trains "
            "nothing; leave it out."
        )
    if not values.dump_arrays.endswith(".npz"):
        raise ValueError(
            f"--dump_arrays must end in .npz; got {values.dump_arrays}."
        )
    dataset = command_line.load_dataset(data_settings)
    dump_arrays(values.dump_arrays, dataset)
    print(f"{values.dump_arrays}: {dataset.counts}")


def _names_of_flags():
    values = flags.FlagValues()
    define_flags(values)
    return set(values)


def _default_folder(values):
    """E.g. runs/cifar10_trial0 or runs/digits_trial2_cross_entropy."""
    name = os.path.basename(values.dataset).removesuffix(".npz")
    parts = [name, values.split_family]
    if has_class_split(values.dataset) and values.known_classes is None:
        parts.append(f"trial{values.trial or 0}")
    if values.method != "cac":
        parts.append(values.method)
    return os.path.join("runs", "_".join(filter(None, parts)))


def configure(values):
    """What the flags ask for.

    Args:
        values: parsed flags.

    Returns:
        The method, the recipe, and the settings as `config.json` keeps them.

    Raises:
        ValueError: a flag out of its range or without effect.
    """
    method = methods.get(values.method)
    # Dumped arrays are trained as the data set that they come from.
    name = origin_of(values.dataset) or values.dataset
    recipe = command_line.recipe_of_flags(values, method, name)
    score = values.score or method.scores[0]
    if values.evaluate_every and (
        score == command_line.AUTO or scores.get(score).IS_FITTED_TO_DATA
    ):
        raise ValueError(
            f"--evaluate_every has no effect with --score={score}, which is "
            "fitted after the training; leave it out."
        )
    methods.check_views(values.views, name, recipe.flip)
    if not 0.0 < values.true_positive_rate < 1.0:
        raise ValueError(
            "--true_positive_rate must be in (0, 1); got "
            f"{values.true_positive_rate}."
        )
    return (
        method,
        recipe,
        {
            **command_line.data_settings(values),
            "method": method.name,
            "score": score,
            "views": values.views or "one",
            "scores": list(command_line.scores_to_compare(values, method)),
            **recipe.in_force,
            "seed": values.seed,
            "evaluate_every": values.evaluate_every,
            "true_positive_rate": values.true_positive_rate,
            "precision": values.precision,
            "backend": keras.backend.backend(),
        },
    )


def main(values):
    """Runs the whole way, from data to a served model."""
    data_settings = command_line.data_settings(values)
    if values.dump_arrays is not None:
        _dump(values, data_settings)
        return
    method, recipe, settings = configure(values)
    path = values.output_dir or _default_folder(values)
    keras.config.set_dtype_policy(values.precision)
    if not values.overwrite:
        earlier = RunFolder.find(path, settings)
        if earlier and earlier.is_finished:
            print(f"{earlier.path} holds this run, finished.")
            print("To run it again: --overwrite.")
            return
    # What is wrong with data or recipe is found before anything is written.
    dataset = command_line.load_dataset(data_settings)
    is_chosen_later = settings["score"] == command_line.AUTO
    model = method.build_model(
        dataset,
        recipe,
        values.seed,
        None if is_chosen_later else settings["score"],
        command_line.views(settings["views"]),
    )
    folder = RunFolder.open(
        path, settings, data_summary(dataset), values.overwrite
    )
    steps_per_epoch = -(-dataset.train.size // recipe.batch_size)

    def learning_curve(model, epoch):
        if not values.evaluate_every or epoch % values.evaluate_every:
            return {}
        measures = evaluate(model, dataset, method.name).metrics
        return {
            f"test_{name}": measures[name]
            for name in ("auroc", "accuracy")
            if measures[name] is not None
        }

    record = method.train(
        model,
        dataset,
        recipe,
        values.seed,
        folder.checkpoint,
        callbacks=[TrainingProgress(recipe.most_epochs, steps_per_epoch)],
        after_epoch=learning_curve,
    )
    if is_chosen_later:
        model = command_line.with_chosen_score(model, dataset)
    model.calibrate(
        dataset.validation.images,
        true_positive_rate=values.true_positive_rate,
    )
    model.save(folder.file("model.keras"))
    evaluation = evaluate(model, dataset, method.name, settings["scores"])
    if keras.backend.backend() == "tensorflow":
        # What an interrupted attempt left is of this same run.
        shutil.rmtree(folder.serving, ignore_errors=True)
        name = os.path.basename(os.path.abspath(folder.path))
        write_model_folder(
            model,
            folder.serving,
            version=1,
            name=re.sub(r"[^\w.-]", "_", name, flags=re.ASCII),
        )
    else:
        print(
            "note: no SavedModel was written, because export needs "
            "TensorFlow. There: cac-export --model="
            f"{folder.file('model.keras')} --output_dir={folder.serving}",
            file=sys.stderr,
        )
    command_line.write_results(
        folder, evaluation, dataset, model.centres, record
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
