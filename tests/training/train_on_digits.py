# SPDX-License-Identifier: Apache-2.0
"""A program that trains on digits, on some devices and as some process.

    python -m tests.training.train_on_digits FOLDER DEVICES WHAT [COORDINATOR
        NUM_PROCESSES PROCESS_ID]

Three batches of 64 images and one of 61; 65 to validate with. Random numbers
are left out: on TensorFlow they are those of each device. WHAT: "few" writes
the weights, threshold and scores after an epoch, of the benchmark network
and of a small one without batch normalization; "whole" does, and then trains a
run in two stages that is interrupted and goes on with one device, beside one
that was never interrupted, and prints the measures of both.
"""

import contextlib
import dataclasses
import sys

import keras
import numpy as np

from cac_tf import data
from cac_tf import experiments
from cac_tf import methods
from cac_tf.experiments.run_folder import read_metrics
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models import networks
from cac_tf.training.processes import Processes
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

# Their statistics are of the features, fitted after the training.
COMPARED = ("vim", "knn")
TWO_STAGES = {"schedule": "two_stage", "epochs": 2, "second_stage_epochs": 1}
PLAIN = {"scale": 1.0, "rotation": 0.0, "dropout": 0.0, "batch_size": 64}


def two_layers(num_classes, input_shape, seed=None, **others):
    """Without batch normalization, which makes rounding large."""
    seeds = [seed, seed and seed + 1]
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Conv2D(
                8,
                5,
                strides=4,
                activation="relu",
                kernel_initializer=keras.initializers.HeNormal(seeds[0]),
            ),
            keras.layers.Flatten(),
            keras.layers.Dense(
                num_classes,
                kernel_initializer=keras.initializers.HeNormal(seeds[1]),
            ),
        ]
    )


def _few():
    def first(part, n):
        return data.Examples(part.images[:n], part.labels[:n])

    digits = data.load_open_set_dataset(dataset="digits", trial=0)
    return dataclasses.replace(
        digits,
        train=first(digits.train, 3 * 64 + 61),
        validation=first(digits.validation, 65),
    )


def _train_on_few(path, runtime, network):
    few = _few()
    method = methods.get("cac")
    recipe = method.recipe_for(
        "digits", {**PLAIN, "epochs": 1, "network": network}
    )
    run = TrainingRun(runtime, path)
    with runtime.scope():
        classifier = method.train(few, recipe, run)
    model = open_set_classifier(classifier, few, "gamma")
    threshold = model.calibrate(few.validation.images, true_positive_rate=0.9)
    history = run.history[0].values()
    np.savez(
        f"{path}.npz",
        threshold=threshold,
        history=[v for v in history if not isinstance(v, str)],
        scores=model.predict_scores(few.unknown_test.images).unknown_score,
        **{f"weight {i}": v for i, v in enumerate(model.get_weights())},
    )


class _Interrupts(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def _interrupt(kind, *values):
    return [_Interrupts()] if kind == "callbacks" else None


def _train_whole(folder, devices):
    config = experiments.ExperimentConfig(
        {"dataset": "digits", "test_fraction": 0.8},
        recipe={**PLAIN, **TWO_STAGES},
        score="vim",
        scores=COMPARED,
    )
    with contextlib.suppress(KeyboardInterrupt):
        experiments.train(
            config, f"{folder}/resumed", devices=devices, tell=_interrupt
        )
    for name, number in (("resumed", 1), ("whole", devices)):
        experiments.train(config, f"{folder}/{name}", devices=number)
        metrics = read_metrics(f"{folder}/{name}")
        measures = [metrics[n] for n in ("auroc", "accuracy", "oscr")]
        measures += [metrics["scores"][name]["auroc"] for name in COMPARED]
        print("METRICS", *measures)


def main(folder, devices, what, coordinator=None, count=1, process_id=0):
    # Not at import: other tests go through all registered networks.
    networks.register(two_layers)
    processes = Processes(coordinator, int(count), int(process_id))
    runtime = Runtime(seed=0, devices=int(devices), processes=processes)
    name = f"{devices}x{count}_{process_id}"
    with runtime.connected():
        _train_on_few(f"{folder}/{name}", runtime, "openset_cnn")
        _train_on_few(f"{folder}/{name}_exact", runtime, "two_layers")
    if what == "whole":
        _train_whole(folder, int(devices))


if __name__ == "__main__":
    main(*sys.argv[1:])
