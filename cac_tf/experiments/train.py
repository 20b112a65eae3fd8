# SPDX-License-Identifier: Apache-2.0
"""A training run, from data to a served model, in its own folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np

from cac_tf import lazy
from cac_tf import methods
from cac_tf import scores
from cac_tf.annotations import Path
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.config import is_frozen
from cac_tf.experiments.cross_fitting import cross_fitted_scores
from cac_tf.experiments.environment import bfloat16_is_slow
from cac_tf.experiments.evaluation import evaluate
from cac_tf.experiments.pretrained_network import PretrainedNetwork
from cac_tf.experiments.pretrained_network import as_of_raw
from cac_tf.experiments.rate_choice import chosen_rates
from cac_tf.experiments.results import Done
from cac_tf.experiments.results import write_results
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import changes
from cac_tf.experiments.run_folder import changes_of_data
from cac_tf.experiments.run_folder import data_summary
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.layers.precision import dtype_policy
from cac_tf.methods.known_data import check_enough_for
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.training import ClassifierTraining
from cac_tf.training.processes import Processes
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

if TYPE_CHECKING:
    from cac_tf.experiments.config import ExperimentConfig

SLOW_PRECISION = (
    "bfloat16 is several times slower than float32 on this processor, which "
    "has no instructions for it: use float32 here."
)


def train(
    config: ExperimentConfig,
    output_dir: Path,
    *,
    overwrite: bool = False,
    tensorboard: bool = False,
    devices: int = 1,
    processes: Processes | None = None,
    tell: Callable[..., None] | None = None,
) -> Done:
    """Trains, calibrates, evaluates and exports; what `cac-train` does.

    Called again after an interruption, it resumes after the last finished
    epoch; a finished run is left alone.

    Args:
        config: `ExperimentConfig`.
        output_dir: folder of the run; created if it does not exist.
        overwrite: whether an earlier run's files there are deleted.
        tensorboard: whether to write TensorBoard logs to `tensorboard/` in the
            folder. Needs that package, and TensorFlow.
        devices: number of devices that each batch is divided among; see
            `training.Runtime`. A run may resume with a different number.
        processes: `training.Processes` that train together. Each calls this
            function; only the first writes to `output_dir`. None: only this
            process.
        tell: called with a `kind` and its values as things happen: "note"
            (about the data), "computed" (how many images of a part a frozen
            network has computed, of how many), "rates" (that maximize a
            measure), "callbacks" (may return additional callbacks). None:
            nothing is called.

    Returns:
        `Done`.

    Raises:
        RunFolderError: the folder holds something else; see `RunFolder`.
        ValueError: data or a configuration that cannot be trained on, fewer
            devices than requested, or processes started with different settings
            or data.
        ImportError: a package that an extra installs is missing.
        ProcessLostError: another process failed or was stopped.

    Example:

    >>> import tempfile
    >>> from cac_tf.experiments import ExperimentConfig
    >>> config = ExperimentConfig(
    ...     {"dataset": "digits", "test_fraction": 0.8}, recipe={"epochs": 1})
    >>> done = train(config, tempfile.mkdtemp())  # doctest: +SKIP
    >>> done.evaluation.metrics["auroc"]  # doctest: +SKIP
    0.7
    """
    tell = tell or (lambda kind, *values: None)
    processes = processes or Processes()
    settings = config.settings()
    runtime = Runtime(config.seed, devices=devices, processes=processes)
    _require_packages(tensorboard)
    _check_devices(config, devices, processes)
    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.connected())
        path = stack.enter_context(processes.own_folder(output_dir))
        _check_alike(processes, changes, settings)
        earlier = None if overwrite else RunFolder.find(path, settings)
        if processes.of_first(bool(earlier and earlier.is_finished)):
            return Done(RunFolder(os.fspath(output_dir)), None)
        stack.enter_context(dtype_policy(config.precision))
        if config.precision == "mixed_bfloat16" and bfloat16_is_slow():
            tell("note", SLOW_PRECISION)
        # Errors in the data are found before anything is written.
        pretrained = None
        if config.is_pretrained:
            runtime.start()  # Without weights, it has random ones.
            pretrained = PretrainedNetwork(config)
        dataset = load_open_set_dataset(
            config.data, as_vectors=is_frozen(config.recipe)
        )
        if config.evaluate_every and dataset.kind_of_inputs == "texts":
            raise ValueError(
                f"evaluate_every={config.evaluate_every} has no effect with "
                "texts, because training uses precomputed vectors; leave it "
                "out."
            )
        if pretrained is not None:
            pretrained.check(dataset)
            dataset = pretrained.noted(dataset)
        for note in dataset.notes:
            tell("note", note)
        summary = data_summary(dataset)
        if pretrained is not None:
            summary["network_sha256"] = pretrained.sha256
        _check_alike(processes, changes_of_data, summary)
        folder = stack.enter_context(
            RunFolder.open(path, settings, summary, overwrite)
        )
        # Another process may have finished it while this one read the data.
        if processes.of_first(folder.is_finished):
            return Done(RunFolder(os.fspath(output_dir)), None)
        for note in folder.notes:
            tell("note", note)
        processes.share(folder.checkpoints)
        evaluation = _train_in(
            folder, config, runtime, dataset, pretrained, tensorboard, tell
        )
    return Done(RunFolder(os.fspath(output_dir), folder.notes), evaluation)


def _check_alike(processes, differences, value):
    found = differences(processes.of_first(value), value)
    if found:
        raise ValueError(
            f"process_id={processes.process_id} has other settings or data "
            f'than the first process ("there" is the first one): {found}.'
        )


def _train_in(folder, config, runtime, dataset, pretrained, tensorboard, tell):
    """Trains and writes all files of a run; returns the `Evaluation`."""
    method, recipe = methods.get(config.method), config.recipe_in_force
    trained_on = dataset
    if pretrained is not None:
        trained_on = pretrained.features(dataset, folder.path, tell)
        recipe = recipe.of_head(dataset.holds_images)
    run = TrainingRun(
        runtime,
        folder.checkpoints,
        callbacks=_callbacks(folder, tensorboard, tell),
        after_epoch=_learning_curve(config, trained_on),
        pictures=folder.file("pictures"),
    )

    def as_model(classifier, dataset):
        return open_set_classifier(
            classifier,
            dataset,
            config.score,
            magnitude=_magnitude(recipe),
            tta=config.tta if dataset.holds_images else None,
        )

    def made(dataset, run):
        seen = dataset if pretrained is None else pretrained.with_views(dataset)
        with runtime.scope():
            classifier = method.train(seen, recipe, run)
        return as_model(classifier, dataset)

    try:
        check_enough_for(scores.get(config.score), trained_on)
        model = made(trained_on, run)
    except ValueError:
        # If the method refuses the recipe, nothing is left behind.
        folder.remove_if_nothing_was_trained()
        raise
    inputs = trained_on
    if pretrained is not None and recipe.fine_tune:
        classifier = pretrained.thawed(model.classifier, dataset, run.seed)
        run.after_epoch = _learning_curve(config, dataset)
        method.fit_classifier(
            classifier,
            dataset,
            recipe.of_fine_tuning,
            run,
            name="fine_tuning",
        )
        inputs, model = dataset, as_model(classifier, dataset)
    rate = config.true_positive_rate
    if config.maximize is not None:
        rates = chosen_rates(config, made, trained_on, run)
        rate = float(np.mean(rates))
        tell("rates", config.maximize, rates, rate)
    if inputs.validation.size:
        method.calibrate(model, inputs, recipe, rate)
    else:
        known_scores = cross_fitted_scores(made, trained_on, run)
        model.calibrate_by_scores(known_scores, rate)
    evaluation = evaluate(
        model, inputs, config.method, config.scores, asked=rate
    )
    if inputs is not dataset:
        model = model.with_backbone(pretrained.of_raw(dataset))
        evaluation = as_of_raw(evaluation, model, dataset)
    model.save(folder.file("model.keras"))
    if keras.backend.backend() == "tensorflow":
        _export(model, folder, dataset.input_columns)
    write_results(folder, evaluation, dataset, model, run)
    return evaluation


def _require_packages(tensorboard):
    """Raises ImportError now rather than after the training."""
    lazy.require("matplotlib", "report")
    if keras.backend.backend() == "tensorflow":
        lazy.require("tensorflow_serving", "serving")
    if tensorboard:
        lazy.require("tensorboard", "tensorboard")
        lazy.require("tensorflow", "tensorflow")


def _check_devices(config, devices, processes):
    name = config.method
    if config.is_pretrained and max(devices, processes.num_processes) > 1:
        raise ValueError(
            "With a pretrained network, a run uses one device and one "
            f"process: leave out devices={devices} and num_processes."
        )
    if (
        devices > 1
        and keras.backend.backend() == "tensorflow"
        and not methods.get(name).takes_several_devices
    ):
        raise ValueError(
            f"With TensorFlow, the method {name} trains on only one device: "
            "leave devices out, or use JAX (KERAS_BACKEND=jax)."
        )


def _callbacks(folder, tensorboard, tell):
    def make(name, epochs, steps_per_epoch):
        callbacks = list(tell("callbacks", name, epochs, steps_per_epoch) or ())
        if tensorboard:
            callbacks.append(
                keras.callbacks.TensorBoard(folder.file("tensorboard", name))
            )
        return callbacks

    return make


def _learning_curve(config, dataset):
    """Evaluates a classifier every few epochs, or None."""
    every = config.evaluate_every
    if not every:
        return None

    recipe = config.recipe_in_force
    # Of those that need no fit, around the anchors.
    score = config.score
    if scores.get(score).IS_FITTED_TO_DATA:
        score = "max_logit"

    def after_epoch(training, epoch):
        if epoch % every or not isinstance(training, ClassifierTraining):
            return {}
        model = OpenSetClassifier(
            training.classifier,
            dataset.class_names,
            score,
            centers=_magnitude(recipe),
            tta=config.tta,
            is_shared=True,
        )
        measures = evaluate(model, dataset, config.method).metrics
        return {
            f"test_{name}": measures[name]
            for name in ("auroc", "accuracy")
            if measures[name] is not None
        }

    return after_epoch


def _magnitude(recipe):
    """Length of the anchors; of methods without any, those of their scores."""
    return getattr(recipe, "magnitude", MAGNITUDE)


def _export(model, folder, input_columns):
    from cac_tf.export import write_model_folder

    # What an interrupted attempt left belongs to this same run.
    folder.delete_files("serving/*")
    os.mkdir(folder.serving)
    name = os.path.basename(os.path.abspath(folder.path))
    name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    write_model_folder(
        model,
        folder.serving,
        version=1,
        # The first character is to be none of these.
        name=name.lstrip(".-") or "model",
        input_columns=input_columns,
    )
