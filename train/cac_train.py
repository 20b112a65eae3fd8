# SPDX-License-Identifier: Apache-2.0
"""cac-train: trains, calibrates, evaluates and exports an open-set classifier.

Photos, one folder per class, with a pretrained network; the classes that are
not listed as known serve as unknown test data:

    cac-train --dataset=folder --data_dir=photos --known_classes=cat,dog \\
        --network=keras_applications/EfficientNetV2B0 --output_dir=runs/photos

The paper's benchmark:

    cac-train --dataset=cifar10 --trial=0 --output_dir=runs/cifar10

Writes model.keras, metrics.json, scores.npz, report.html and, on TensorFlow,
serving/1 into --output_dir. After an interruption, the same command continues
from the last finished epoch; if the run is already finished, it says so.
--config=<a run's config.json> repeats that run.
"""

import json
import os
import re
import sys

from absl import flags

from cac_tf import data
from cac_tf import experiments
from cac_tf import lazy
from cac_tf import training
from cac_tf.models import networks
from cac_tf.train import command_line
from cac_tf.train import flag_kinds
from cac_tf.train import quiet
from cac_tf.train import terminal

keras = lazy.module("keras")


_WITH_CONFIG = (
    *("output_dir", "overwrite", "tensorboard"),
    *("devices", "coordinator", "num_processes", "process_id"),
)
_TRY = "Try it in a browser (needs Gradio)"
_FIRST = (
    *("dataset", "data_dir", "known_classes", "trial", "method", "network"),
    *("epochs", "score", "true_positive_rate", "seed", "output_dir"),
)


def define_flags(values):
    """Defines the flags of `cac-train`."""
    command_line.define_data_flags(values)
    command_line.define_options(
        values, experiments.ExperimentConfig, "training"
    )
    flag_kinds.define_text(
        values,
        "config",
        None,
        "A run's config.json, to repeat that run. Can be combined only with "
        "--output_dir, --overwrite, --tensorboard and the device and process "
        "flags.",
    )
    flag_kinds.define_text(
        values,
        "output_dir",
        None,
        "Folder of the run. Default: a folder in runs/ named after data set, "
        "trial and method.",
    )
    flag_kinds.define_text(
        values,
        "dump_arrays",
        None,
        "Write the data to this .npz file instead of training; "
        "--dataset=<that file> then runs the same experiment on a machine "
        "without TensorFlow or the data set.",
    )
    flag_kinds.define_whole_number(
        values,
        "devices",
        1,
        "Number of devices that share each batch: the first accelerators or, "
        "if there are none, virtual CPU devices. The weights are the same as "
        "with one device, up to rounding (except for random layers on "
        "TensorFlow).",
        lower_bound=1,
    )
    flag_kinds.define_text(
        values,
        "coordinator",
        None,
        "host:port of the first process, to train with several processes, on "
        "one or more hosts. Start each with the same command, changing only "
        "--process_id. Needs JAX.",
    )
    flag_kinds.define_whole_number(
        values,
        "num_processes",
        1,
        "Number of processes that train together; each uses --devices devices.",
        lower_bound=1,
    )
    flag_kinds.define_whole_number(
        values,
        "process_id",
        0,
        "Number of this process, from 0. Process 0 writes into --output_dir.",
        lower_bound=0,
    )
    flag_kinds.define_switch(
        values,
        "tensorboard",
        False,
        "Write TensorBoard logs to tensorboard/ in the run's folder.",
    )
    flag_kinds.define_switch(
        values,
        "overwrite",
        False,
        "Delete what an earlier run left in --output_dir and start over.",
    )
    command_line.define_recipe_flags(values)


def _names_of_flags():
    values = flags.FlagValues()
    define_flags(values)
    return set(values)


def _refuse_others(values, own, why):
    """Raises ValueError for a given flag that is not among a few."""
    ignored = [
        name for name in sorted(_names_of_flags() - own) if values[name].present
    ]
    if ignored:
        raise ValueError(f"--{ignored[0]} has no effect {why}; leave it out.")


def _dump(values):
    _refuse_others(
        values,
        {*command_line.DATA_FLAGS, "dump_arrays"},
        "with --dump_arrays, which does not train",
    )
    if not values.dump_arrays.endswith(".npz"):
        raise ValueError(
            f"--dump_arrays must end in .npz; got {values.dump_arrays}."
        )
    folder = os.path.dirname(values.dump_arrays) or "."
    if not os.path.isdir(folder):  # Known only after the images are read.
        raise ValueError(f"--dump_arrays: folder not found: {folder}.")
    settings = command_line.data_settings(values)
    own = os.path.realpath(values.dump_arrays)
    for name, value in settings.items():
        if isinstance(value, str) and os.path.realpath(value) == own:
            raise ValueError(
                f"--dump_arrays would overwrite --{name}={value}. Choose "
                "another file."
            )
    dataset = data.load_open_set_dataset(**settings)
    for note in dataset.notes:
        terminal.tell("note", note)
    data.dump_arrays(values.dump_arrays, dataset)
    terminal.say(f"{values.dump_arrays}: {dataset.counts}")


def _default_folder(config):
    """E.g. runs/cifar10_trial0 or runs/digits_trial2_cross_entropy."""
    options = config.data
    name = re.sub(
        r"\.(npz|npy|csv|parquet)$", "", os.path.basename(options.dataset)
    )
    parts = [name, options.split_family]
    has_split = data.has_class_split(options.dataset)
    if options.known_share is not None:
        parts.append(f"share{options.known_share:g}")
        has_split = True
    if has_split and options.known_classes is None:
        parts.append(f"trial{options.value_of('trial')}")
    if config.method != "cac":
        parts.append(config.method)
    return os.path.join("runs", "_".join(filter(None, parts)))


def configure(values):
    """The `ExperimentConfig` that flags ask for.

    Args:
        values: parsed flags.

    Raises:
        ValueError: a flag out of its range or without effect.
    """
    if (
        values.config is not None
        or values.evaluate_every
        or networks.is_pretrained(values.network or "")
    ):
        # Its backend, the class of a score, or a model in a file decides.
        quiet.load("keras")
    if values.config is not None:
        _refuse_others(
            values,
            {"config", *_WITH_CONFIG},
            "with --config, which already sets everything",
        )
        return experiments.ExperimentConfig.from_dict(
            _settings_in(values.config)
        )
    if not values.dataset:
        raise ValueError("--dataset must name a data set (or pass --config).")
    return experiments.ExperimentConfig(**settings_of(values))


def settings_of(values):
    """Arguments of `ExperimentConfig` that flags decide."""
    return {
        "data": command_line.data_settings(values),
        "recipe": command_line.given_recipe(values),
        **command_line.given_options(values, experiments.ExperimentConfig),
    }


def _settings_in(path):
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        found = content["format"]
        if found == experiments.FORMAT:
            return content["settings"]
    except FileNotFoundError as error:
        raise ValueError(f"--config={path}: file not found.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--config={path} is not a run's config.json: "
            f"{type(error).__name__}: {error}"
        ) from error
    raise ValueError(
        f"--config={path} was not written by this version of cac_tf (its "
        f"format is {found}; this version uses {experiments.FORMAT})."
    )


def main(values):
    """Runs the whole way, from data to a served model."""
    if values.dump_arrays is not None:
        if not values.dataset:
            raise ValueError("--dump_arrays needs --dataset.")
        _dump(values)
        return
    if values.devices > 1:
        # On a CPU, its kernels fail where one of the devices has no row.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    config = configure(values)
    quiet.load("keras")
    processes = training.Processes(
        values.coordinator, values.num_processes, values.process_id
    )
    if processes.num_processes > 1:
        _say_where(processes)
    trained = experiments.train(
        config,
        values.output_dir or _default_folder(config),
        overwrite=values.overwrite,
        tensorboard=values.tensorboard,
        devices=values.devices,
        processes=processes,
        tell=terminal.tell if processes.is_first else None,
    )
    if not processes.is_first:
        terminal.say("This process is done; process 0 has the results.")
        return
    folder = trained.folder
    if trained.evaluation is None:
        terminal.say(
            f"{folder.path} already contains this run, finished.",
            "To run it again, add --overwrite.",
        )
        return
    if keras.backend.backend() != "tensorflow":
        terminal.tell(
            "note",
            "no SavedModel was written, because export needs TensorFlow. To "
            f"write it there: cac-export --model={folder.file('model.keras')} "
            f"--output_dir={folder.serving}",
        )
    following = {}
    if os.path.exists(folder.serving):
        following["How to serve it"] = folder.file("serving", "README.md")
    model = f"--model={folder.path}"
    to_ask = "YOUR_PHOTO.jpg" if config.takes_images else "YOUR_FILE"
    again = f"--output_dir={os.path.normpath(folder.path)}_scores"
    if config.takes_images:
        demo = terminal.command("cac-demo", model)
        following[_TRY] = demo
    following |= {
        "Classify new inputs": terminal.command("cac-predict", model, to_ask),
        "Compare all scores": terminal.command(
            "cac-evaluate", model, "--scores=all", again
        ),
    }
    terminal.print_results(trained.evaluation.metrics, folder, following)


def _say_where(processes):
    what = f"Process {processes.process_id} of {processes.num_processes}"
    where = f"at {processes.coordinator}"
    if processes.is_first:
        terminal.say(f"{what} is waiting for the others {where}.")
    else:
        terminal.say(f"{what} is connecting to the first {where}.")


def run():
    """Entry point of the console script."""
    try:
        command_line.run(
            define_flags,
            main,
            __doc__,
            when_interrupted="The same command continues from the last "
            "finished epoch.",
            first=_FIRST,
        )
    except SystemExit as ending:
        if flags.FLAGS.is_parsed() and flags.FLAGS.num_processes > 1:
            # JAX would wait for the other processes, which wait for this one.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ending.code or 0)
        raise


if __name__ == "__main__":
    run()
