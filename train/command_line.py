# SPDX-License-Identifier: Apache-2.0
"""What all binaries share: how they start, fail, and name their data."""

import dataclasses
import logging
import sys

from absl import app
from absl import flags
from absl import logging as absl_logging

from cac_tf import atomic_files
from cac_tf.data import load_open_set_dataset
from cac_tf.reporting import write_report
from cac_tf.run_folder import read_config


def run(define_flags, main, doc, when_interrupted=""):
    """Runs a binary: parses the command line and turns errors into messages.

    Args:
        define_flags: takes `absl.flags.FlagValues` and defines the flags.
        main: takes the parsed flags.
        doc: what `--help` says first.
        when_interrupted: what Ctrl-C answers.
    """
    values = flags.FLAGS
    before = set(values)
    define_flags(values)
    for name in set(values) - before:
        # --help shows the key flags of the script that was started.
        values.register_key_flag_for_module(sys.argv[0], values[name])
    sys.modules["__main__"].__doc__ = doc

    # Exports say of every file that it was written.
    logging.getLogger("tensorflow").setLevel(logging.WARNING)
    absl_logging.set_verbosity(absl_logging.WARNING)  # unless a flag says

    def main_with_messages(argv):
        program = sys.argv[0].rsplit("/", 1)[-1]
        if len(argv) > 1:
            _fail(program, f"unexpected argument {argv[1]!r}")
        try:
            main(values)
        except KeyboardInterrupt:
            print(
                f"\n{program}: interrupted. {when_interrupted}",
                file=sys.stderr,
            )
            sys.exit(130)
        except Exception as error:
            # With --verbosity=1 the whole story.
            absl_logging.debug("", exc_info=True)
            _fail(program, str(error) or type(error).__name__)

    app.run(main_with_messages)


def _fail(program, message):
    print(f"{program}: error: {message}", file=sys.stderr)
    sys.exit(1)


def define_data_flags(values):
    """The flags that name a data set and its known classes."""
    flags.DEFINE_string(
        "dataset",
        None,
        "digits; folder (of images, see --data_dir); a path ending in .npz; "
        "or the name of a TFDS data set with an image and a label.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "data_dir",
        None,
        "For folder: the folder, with one sub-folder a class, or with "
        "train/, test/ and optionally validation/ and the classes inside. "
        "For TFDS: its data directory.",
        flag_values=values,
    )
    flags.DEFINE_list(
        "known_classes",
        None,
        "Names of the known classes, separated by commas; the rest is "
        "unknown. Default: the benchmark's split, where there is one.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "split_family",
        None,
        ["neal", "miller2020"],
        "Family of the benchmark's class splits. Default: neal.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "trial",
        None,
        "Which of the family's five splits, 0 to 4. Default: 0.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "image_size",
        None,
        "Height and width to resample images to. Default: their own, and 32 "
        "for folder.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "strict",
        False,
        "For folder: an unreadable file is an error; else it is skipped and "
        "named.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "split_seed",
        0,
        "Seed of the choice of validation (and test) images.",
        lower_bound=0,
        flag_values=values,
    )
    flags.DEFINE_float(
        "test_fraction",
        None,
        "Share of each known class set apart for testing, where the data "
        "have no test part. Default: 0.3.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "validation_fraction",
        None,
        "Share of each known class's training images set apart for "
        "validation, where the data have no such part. Default: 0.2.",
        flag_values=values,
    )


DATA_FLAGS = (
    "dataset",
    "data_dir",
    "known_classes",
    "split_family",
    "trial",
    "image_size",
    "strict",
    "split_seed",
    "test_fraction",
    "validation_fraction",
)


def data_settings(values):
    """The data flags as a dict, as `config.json` keeps them."""
    return {name: values[name].value for name in DATA_FLAGS}


def load_dataset(settings):
    """The `OpenSetDataset` of a dict of data flags; prints its notes."""
    dataset = load_open_set_dataset(
        **{name: settings[name] for name in DATA_FLAGS}
    )
    for note in dataset.notes:
        print(f"note: {note}", file=sys.stderr)
    return dataset


def define_recipe_flags(values, recipe_class):
    """One flag for each field of the recipe, without a default."""
    for field in dataclasses.fields(recipe_class):
        define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}
        define[field.type](
            field.name,
            None,
            f"{RECIPE_HELP[field.name]} Default: the data set's preset.",
            flag_values=values,
        )


RECIPE_HELP = {
    "epochs": "Number of passes over the training images.",
    "batch_size": "Images per training step.",
    "learning_rate": "Of SGD at the start; it falls to 0 along a cosine.",
    "momentum": "Of SGD, in [0, 1).",
    "weight_decay": "L2 penalty on all weights, as a gradient factor.",
    "dropout": "Share of channels dropped after each block, in [0, 1).",
    "scale": "Smallest area of a random crop, in (0, 1]; 1: no crops.",
    "flip": "Probability of a horizontal flip.",
    "rotation": "Largest random rotation, in degrees.",
    "magnitude": "Length of the anchors (the paper's alpha).",
    "anchor_weight": "Weight of the anchor loss (the paper's lambda).",
}


def write_results(folder, evaluation, dataset, centres, history=()):
    """Writes what an evaluation gave into a run's folder, and prints it.

    `metrics.json` comes last: with it the run is finished.
    """
    folder.write_scores(evaluation)
    report = folder.file("report.html")
    config = read_config(folder.path)
    write_report(report, evaluation, dataset, config, centres, history)
    atomic_files.write_json(folder.file("metrics.json"), evaluation.metrics)
    _print_measures(evaluation.metrics)
    print(f"Report: {report}")


def _print_measures(measures):
    for name in (
        "auroc",
        "accuracy",
        "oscr",
        "threshold",
        "true_positive_rate",
        "false_positive_rate",
    ):
        value = measures[name]
        shown = "-" if value is None else f"{value:.4g}"
        print(f"{name.replace('_', ' '):>20}  {shown}")
