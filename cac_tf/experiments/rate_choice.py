# SPDX-License-Identifier: Apache-2.0
"""How many known inputs to accept, chosen by leaving known classes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cac_tf.data.open_set_dataset import stratified_split
from cac_tf.data.options import VALIDATION_FRACTION

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.experiments.config import ExperimentConfig
    from cac_tf.models.open_set_classifier import OpenSetClassifier
    from cac_tf.training.run import TrainingRun

# Trainings, and the share of the known classes that each leaves out.
DRAWS, LEFT_OUT = 3, 0.25


def chosen_rates(
    config: ExperimentConfig,
    made: Callable[[OpenSetDataset, TrainingRun], OpenSetClassifier],
    dataset: OpenSetDataset,
    run: TrainingRun,
) -> list[float]:
    """The best true-positive rates where some known classes are unknown.

    A quarter of the known classes, drawn three times, is not trained on and
    stands for unknown classes. Of each such model the threshold is taken that
    maximizes `config.maximize` where `config.unknown_share` of the inputs are
    unknown, and the share of known validation inputs that it accepts. No
    unknown and no test data are looked at.

    Unknown classes of the application may lie further off or nearer than known
    classes lie from each other; then another rate would be better.

    Args:
        config: `ExperimentConfig` with `maximize`.
        made: function of a data set and a `TrainingRun` that trains, and gives
            an `OpenSetClassifier`.
        dataset: `OpenSetDataset`.
        run: `TrainingRun` of that model; the trainings of this function keep
            their checkpoints beside its own.

    Returns:
        A rate in (0, 1) for each draw; their mean is the choice.

    Raises:
        ValueError: fewer than three known classes.
    """
    classes = len(dataset.class_names)
    if classes < 3:
        raise ValueError(
            f"maximize={config.maximize} leaves out some known classes, and "
            f"at least two must remain; there are only {classes}. Set "
            "true_positive_rate=... instead."
        )
    if not dataset.validation.size:
        train, apart = stratified_split(
            dataset.train, VALIDATION_FRACTION, config.seed, dataset.class_names
        )
        dataset = dataclasses.replace(dataset, train=train, validation=apart)
    rng = np.random.default_rng(config.seed)
    found = []
    for draw in range(DRAWS):
        out = rng.permutation(classes)[: max(1, round(LEFT_OUT * classes))]
        fewer = dataset.without_classes(out[: classes - 2])
        model = made(fewer, run.beside(f"left_out_{draw}"))
        known = fewer.known_test
        threshold = model.calibrate(
            known.images,
            known.labels,
            unknown=fewer.unknown_test.images,
            maximize=config.maximize,
            unknown_share=config.unknown_share,
        )
        scores = model.predict_scores(known.images).unknown_score
        # A rate of all or none is none that `calibrate` takes.
        fewest = 1.0 / (known.size + 1)
        found.append(
            float(np.clip(np.mean(scores <= threshold), fewest, 1.0 - fewest))
        )
    return found
