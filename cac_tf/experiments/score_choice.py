# SPDX-License-Identifier: Apache-2.0
"""Chooses a rejection score on known data only (score="auto")."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from cac_tf import metrics
from cac_tf import scores as score_rules
from cac_tf.experiments.evaluation import fitted_scores

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier
    from cac_tf.scores.score import Score

# The largest number of composites.
_MOST_COMPOSITES = 3000


def choose_score(
    model: OpenSetClassifier, dataset: OpenSetDataset, seed: int = 0
) -> tuple[Score, dict[str, np.ndarray], dict[str, float]]:
    """The score that best separates known images from composites of them.

    A composite is the left half of one known validation image beside the
    right half of another one, of another class: an image of no known class.
    Every score is fitted to the known data, and the one with the largest
    AUROC of validation images against composites is chosen. Scores that keep
    a bank of examples or their logits take part like all others.

    This shows which score notices that parts which the network has learnt do
    not belong together. It cannot show what the unknown inputs of the
    application will be like. This rule is one of six that were compared on the
    test data of the paper's authors' released weights. On digits, which were
    not used for that, its choice is at most 0.006 below the best score of a run
    (benchmarks/digits_scores.py). Take the choice as a guess, and measure on
    unknown data of your own if you have any.
    A score whose statistics come from the validation images has a small
    advantage, because these images are compared.

    Args:
        model: trained `OpenSetClassifier` on images.
        dataset: `OpenSetDataset`; its training and validation data are used,
            its test data are not.
        seed: seed of the choice of pairs.

    Returns:
        The chosen `scores.Score`, its statistics, and a dict of the AUROC of
        each score that could be fitted, by its name.

    Raises:
        ValueError: the data set is not of images, or has no validation images
            of two classes.
    """
    if len(dataset.image_shape) != 3:
        raise ValueError(
            "A score can be chosen only for images, from which composites can "
            f"be made; the inputs have shape {dataset.image_shape}."
        )
    known = dataset.validation.images
    composites = _composites(known, dataset.validation.labels, seed)
    with warnings.catch_warnings():
        # A score that cannot be used is not a candidate; no warning is needed.
        warnings.simplefilter("ignore", UserWarning)
        fitted = fitted_scores(
            model, dataset, [score_rules.get(n) for n in score_rules.names()]
        )
    by_part = [_unknown_scores(model, fitted, x) for x in (known, composites)]
    separations = {
        score.name: metrics.auroc(*(part[score.name] for part in by_part))
        for score in fitted
    }
    chosen = max(fitted, key=lambda score: separations[score.name])
    return chosen, fitted[chosen], separations


def _composites(images, labels, seed):
    """Left and right halves of images of different classes."""
    rng = np.random.default_rng(seed)
    left = rng.permutation(len(images))[:_MOST_COMPOSITES]
    right = rng.integers(0, len(images), len(left))
    if len(np.unique(labels)) < 2:
        raise ValueError(
            "A score is chosen with composites of validation images of two "
            "classes; there are none."
        )
    while (same := labels[left] == labels[right]).any():
        right[same] = rng.integers(0, len(images), same.sum())
    composites = images[left]
    middle = images.shape[2] // 2
    composites[:, :, middle:] = images[right][:, :, middle:]
    return composites


def _unknown_scores(model, fitted, images):
    """Dict of (n,) unknown scores by the names of the scores."""
    parts = {score.name: [] for score in fitted}
    names = dict.fromkeys(name for score in fitted for name in score.READS)
    for outputs, *_ in model.iterate_outputs(images, names=names):
        for score, statistics in fitted.items():
            values = score.arguments_of(outputs)
            parts[score.name].append(score.of_arrays(*values, **statistics))
    return {name: np.concatenate(part) for name, part in parts.items()}
