# SPDX-License-Identifier: Apache-2.0
"""How fast this machine trains a network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras
import numpy as np

from cac_tf import data
from cac_tf import methods
from cac_tf.experiments.benchmark_plan import training_images
from cac_tf.layers.precision import dtype_policy
from cac_tf.losses import CACLoss
from cac_tf.methods.published_recipe import PublishedRecipe
from cac_tf.models import networks

if TYPE_CHECKING:
    from cac_tf.experiments.benchmark_plan import BenchmarkRun
    from cac_tf.experiments.config import ExperimentConfig

_NUM_CLASSES = 6
# Of a run that only evaluates a model; a rough guess.
_SECONDS_OF_EVALUATION = 60.0


def estimated_seconds(
    configs: Mapping[BenchmarkRun, ExperimentConfig],
) -> dict[BenchmarkRun, float | None]:
    """Seconds of a benchmark's runs, from a few timed training steps.

    As if no stage ended early; None for a recipe that does not say what would
    have to be timed, or that trains more than a classifier, and for vectors.
    """
    rates: dict[tuple, float] = {}
    found: dict[BenchmarkRun, float | None] = {}
    for run, config in configs.items():
        recipe = config.recipe_in_force
        if run.evaluated_model is not None:
            found[run] = _SECONDS_OF_EVALUATION
            continue
        if (
            config.vectors is not None
            or not isinstance(recipe, methods.Recipe)
            or isinstance(recipe, PublishedRecipe)
        ):
            found[run] = None
            continue
        benchmark_set = data.BENCHMARK_SETS.get(run.dataset)
        size = config.data.image_size or (
            benchmark_set.image_size if benchmark_set else 8
        )
        kind = (recipe.network, size, recipe.batch_size, config.precision)
        if kind not in rates:
            rates[kind] = images_per_second(*kind)
        images = training_images(config.data)
        found[run] = images * recipe.most_epochs / rates[kind]
    return found


def images_per_second(
    network: str,
    image_size: int,
    batch_size: int,
    precision: str,
    steps: int = 4,
) -> float:
    """Times a few training steps on synthetic images, without the first one.

    Args:
        network: name of `models.networks`.
        image_size: height and width.
        batch_size: images per step.
        precision: Keras dtype policy.
        steps: how many steps are timed; the median counts.
    """
    with dtype_policy(precision):
        classifier = networks.find(network)(
            _NUM_CLASSES, (image_size, image_size, 3), weight_decay=1e-5
        )
    classifier.compile(keras.optimizers.SGD(0.01, momentum=0.9), CACLoss())
    shape = (batch_size, image_size, image_size, 3)
    images = np.random.default_rng(0).random(shape, "float32")
    labels = np.arange(batch_size) % _NUM_CLASSES
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        classifier.train_on_batch(images, labels)
        seconds.append(time.perf_counter() - started)
    return batch_size / float(np.median(seconds[1:]))
