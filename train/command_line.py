# SPDX-License-Identifier: Apache-2.0
"""What all binaries share: how they start, fail, and name their data."""

import dataclasses
import hashlib
import logging
import sys

import rich.console
import rich.table
from absl import app
from absl import flags
from absl import logging as absl_logging

from cac_tf import atomic_files
from cac_tf import methods
from cac_tf import scores
from cac_tf.data import BENCHMARK_SETS
from cac_tf.data import load_open_set_dataset
from cac_tf.methods.recipe import SCHEDULES
from cac_tf.models import NETWORKS
from cac_tf.reporting import write_report
from cac_tf.run_folder import FORMAT
from cac_tf.run_folder import read_config
from cac_tf.score_choice import choose_score


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
        f"digits; a set of the paper's benchmark ({', '.join(BENCHMARK_SETS)}"
        "); folder (of images, see --data_dir); a path ending in .npz; or the "
        "name of another TFDS data set with an image and a label.",
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
    flags.DEFINE_list(
        "unknown_classes",
        None,
        "Names of the unknown classes. Default: those of the benchmark's "
        "split, else all that are not known (cifar10_vs_cifar100: those "
        "without a counterpart in CIFAR10).",
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
        "Height and width to resample images to. Default: 32, tinyimagenet "
        "64; for TFDS sets outside of the benchmark their own.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_bool(
        "stream",
        None,
        "Decode images when they are used, instead of holding them in memory. "
        "Default: if they would need more than 1 GiB.",
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
        "validation, where the data have no such part. Default: 0.2, "
        "tinyimagenet 0.1.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "validation_split",
        None,
        ["authors"],
        "authors: set apart the validation images that the paper's authors "
        "did, which their released weights have not seen (cifar10, cifar+10, "
        "cifar+50). Default: chosen by --split_seed.",
        flag_values=values,
    )


DATA_FLAGS = (
    "dataset",
    "data_dir",
    "known_classes",
    "unknown_classes",
    "split_family",
    "trial",
    "image_size",
    "strict",
    "stream",
    "split_seed",
    "test_fraction",
    "validation_fraction",
    "validation_split",
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


def define_recipe_flags(values):
    """One flag for each field of all methods' recipes, without a default."""
    choices = {"network": tuple(NETWORKS), "schedule": SCHEDULES}
    define = {
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_bool,
    }
    for name, type_ in _recipe_fields().items():
        text = f"{RECIPE_HELP[name]} Default: the data set's preset."
        if name in choices:
            flags.DEFINE_enum(
                name, None, choices[name], text, flag_values=values
            )
        else:
            define[type_](name, None, text, flag_values=values)


def _recipe_fields():
    """Names and types of the fields of all methods' recipes."""
    return {
        field.name: field.type
        for method in map(methods.get, methods.names())
        for field in dataclasses.fields(method.recipe)
    }


# Upper limit of a stage that ends by itself.
_MOST_EPOCHS_UNTIL_CONVERGED = 1000


def recipe_of_flags(values, method, dataset):
    """The recipe that preset and flags give.

    Args:
        values: parsed flags.
        method: `Method`.
        dataset: name of the data set, for the preset.

    Raises:
        ValueError: a flag that has no effect with this method or with the
            other flags, or a value out of its range.
    """
    given = {
        name: values[name].value
        for name in _recipe_fields()
        if values[name].value is not None
    }
    fields = {field.name for field in dataclasses.fields(method.recipe)}
    merged = {**methods.preset(dataset), **given}
    if merged.get("until_converged"):
        for name in ("epochs", "second_stage_epochs"):
            merged[name] = given.get(name, _MOST_EPOCHS_UNTIL_CONVERGED)
    recipe = method.recipe(**{n: v for n, v in merged.items() if n in fields})
    without_effect = sorted(set(given) - fields | set(given) & recipe.unused)
    if without_effect:
        raise ValueError(
            f"--{without_effect[0]} has no effect with --method={method.name} "
            f"--schedule={recipe.schedule}"
            + ("" if recipe.until_converged else " --nountil_converged")
            + f" --second_stage_epochs={recipe.second_stage_epochs}; leave it "
            "out."
        )
    return recipe


RECIPE_HELP = {
    "network": "Backbone.",
    "schedule": "cosine: the learning rate falls to 0 over all epochs, and "
    "the last weights are kept. two_stage: --epochs at --learning_rate, then, "
    "from the best weights, --second_stage_epochs at "
    "--second_stage_learning_rate; the best weights by validation are kept.",
    "epochs": "Passes over the training images, with two_stage those of the "
    "first stage; with --until_converged at most so many (1000).",
    "learning_rate": "Of SGD at the start.",
    "second_stage_epochs": "Passes of the second stage; 0: none; with "
    "--until_converged at most so many (1000).",
    "second_stage_learning_rate": "Of SGD in the second stage.",
    "until_converged": "Each stage ends when the validation value (CAC: the "
    "anchor loss) has not improved for --patience epochs.",
    "patience": "Epochs without improvement that end a stage (20).",
    "batch_size": "Images per training step.",
    "momentum": "Of SGD, in [0, 1).",
    "weight_decay": "L2 penalty on all weights, as a gradient factor.",
    "dropout": "Share of channels dropped after each block, in [0, 1).",
    "scale": "Smallest area of a random crop, in (0, 1]; 1: no crops.",
    "flip": "Probability of a horizontal flip.",
    "rotation": "Largest random rotation, in degrees.",
    "magnitude": "Length of the anchors (the paper's alpha).",
    "anchor_weight": "Weight of the anchor loss (the paper's lambda).",
}


def write_results(folder, evaluation, dataset, centres, record=None):
    """Writes what an evaluation gave into a run's folder, and prints it.

    `metrics.json` comes last: with it the run is finished.

    Args:
        folder: `RunFolder`.
        evaluation: `Evaluation`.
        dataset: the `OpenSetDataset` that was evaluated on.
        centres: (N, N) class centres in force.
        record: `TrainingRecord`, if the model was trained in this run.
    """
    history = record.history if record else []
    folder.write_scores(evaluation)
    report = folder.file("report.html")
    config = read_config(folder.path)
    write_report(report, evaluation, dataset, config, centres, history)
    measures = {"format": FORMAT, **evaluation.metrics}
    if record:
        atomic_files.write_json(
            folder.file("history.json"), record.finite_history
        )
        measures["epochs"] = len(history)
        measures["seconds"] = round(record.seconds, 1)
    atomic_files.write_json(folder.file("metrics.json"), measures)
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
    if measures["split_family"] == "custom":
        # No published split names them: they belong to the result.
        names = ", ".join(measures["unknown_class_names"])
        print(f"{'unknown classes':>20}  {names}")
    if len(measures["scores"]) > 1 and measures["auroc"] is not None:
        _print_scores(measures)


def _print_scores(measures):
    """What each score gives, beside what it costs."""
    table = rich.table.Table()
    rates = list(measures["ccr"])
    table.add_column("score")
    for name in (
        "AUROC",
        *(f"CCR@{float(rate):.0%}" for rate in rates),
        "OSCR",
        "accuracy",
        "us/image",
    ):
        table.add_column(name, justify="right")
    times = measures["microseconds_per_image"]
    for name, by_score in measures["scores"].items():
        table.add_row(
            name,
            *(
                f"{value:.4f}"
                for value in (
                    by_score["auroc"],
                    *by_score["ccr"].values(),
                    by_score["oscr"],
                    by_score["accuracy"],
                )
            ),
            f"{times[name]:.2f}",
        )
    table.caption = f"us/image: after the network's {times['network']:.0f}"
    rich.console.Console(width=100, highlight=False).print(table)


def file_sha256(path):
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def define_score_flags(values, default):
    """The flags `--score`, `--views` and `--scores`.

    Args:
        values: `absl.flags.FlagValues`.
        default: what an absent `--score` and `--views` mean, a sentence.
    """
    flags.DEFINE_enum(
        "score",
        None,
        (*scores.names(), AUTO),
        "Which rule gives the unknown score. auto: that which tells the known "
        "validation images best from composites of two of them; a guess, see "
        f"cac_tf.score_choice. {default}",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "views",
        None,
        ["one", "flip"],
        "flip: logits and features are means over an image and its mirror "
        f"image, at twice the cost. {default}",
        flag_values=values,
    )
    define_scores_flag(values, "Default: those of the method.")


# `--score=auto`, and `--scores=all`.
AUTO, ALL = "auto", "all"


def define_scores_flag(values, default):
    """The flag `--scores`."""
    flags.DEFINE_list(
        "scores",
        None,
        f"Scores to compare on the test data, of: {ALL}, "
        f"{', '.join(scores.names())}. {default}",
        flag_values=values,
    )


def views(text):
    """The argument `views` of a classifier for what `--views` says."""
    return None if text == "one" else text


def scores_to_compare(values, method):
    """Names of the scores of `--scores`.

    Raises:
        ValueError: a name that is none.
    """
    if values.scores is None:
        return method.scores
    if values.scores == [ALL]:
        return scores.names()
    for name in values.scores:
        if name not in scores.names():
            raise ValueError(
                f"--scores must be {ALL}, or names of: "
                f"{', '.join(scores.names())}; got {name!r}."
            )
    return tuple(dict.fromkeys(values.scores))


def with_chosen_score(model, dataset):
    """The model with the score that `--score=auto` means, fitted."""
    chosen, separations = choose_score(model, dataset)
    for name, value in sorted(separations.items(), key=lambda item: -item[1]):
        print(f"{name:>25}  {value:.4f} from composites of known images")
    print(f"--score=auto chose {chosen.name}", flush=True)
    return model.with_score(chosen)
