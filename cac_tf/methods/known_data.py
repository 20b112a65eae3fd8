# SPDX-License-Identifier: Apache-2.0
"""A method's classifier, made an open-set classifier as the paper's authors do.

Class means of a network that was trained with mirrored images are taken over
each training image and its mirror image; scores see the images as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import lazy
from cac_tf.hyperparameters import MAGNITUDE

if TYPE_CHECKING:
    import keras

    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier

# They need Keras, which `--help` does without.
image_classifier = lazy.module("cac_tf.models.image_classifier")
input_checks = lazy.module("cac_tf.models.input_checks")
models = lazy.module("cac_tf.models")
scores = lazy.module("cac_tf.scores")

_BATCH_SIZE = 128


def open_set_classifier(
    classifier: keras.Model,
    dataset: OpenSetDataset,
    score: Any,
    *,
    magnitude: float = MAGNITUDE,
    tta: str | None = None,
    features_layer: str | None = None,
) -> OpenSetClassifier:
    """The open-set classifier of a trained classifier, without a threshold.

    Args:
        classifier: Keras model of raw images.
        dataset: `OpenSetDataset`. A score is fitted to its training images, or
            its validation images if it wants data not used for training.
        score: name of a score, or a `scores.Score`.
        magnitude: length of the anchors that it was trained with.
        tta, features_layer: as of `OpenSetClassifier`.
    """
    score = scores.get(score)
    known: Any
    of_score = None
    if _is_held_out(score, dataset):
        of_score = tuple(dataset.validation)
    if image_classifier.share_of_mirrored(classifier):
        of_score = of_score or tuple(dataset.train)
        known = _with_mirror_images(dataset.train)
    else:
        known = tuple(dataset.train)
    return models.OpenSetClassifier.from_classifier(
        classifier,
        known,
        class_names=dataset.class_names,
        score=score,
        score_data=of_score,
        magnitude=magnitude,
        tta=tta,
        features_layer=features_layer,
        batch_size=_BATCH_SIZE,
    )


def _with_mirror_images(examples):
    # These decode streamed images ahead.
    for images, labels, _ in input_checks.iterate_batches(
        examples.images, examples.labels, _BATCH_SIZE
    ):
        yield images, labels
        yield images[:, :, ::-1], labels


def known_examples(score: Any, dataset: OpenSetDataset) -> Any:
    """The `Examples` that a score is fitted to.

    Args:
        score: `scores.Score`.
        dataset: `OpenSetDataset`.
    """
    return dataset.validation if _is_held_out(score, dataset) else dataset.train


def _is_held_out(score, dataset):
    """Whether a score is fitted to validation data; there may be none."""
    return score.WANTS_HELD_OUT_DATA and dataset.validation.size > 0


def check_enough_for(score: Any, dataset: OpenSetDataset) -> None:
    """Raises ValueError if a score could not be fitted after a training."""
    counts = np.bincount(
        np.asarray(known_examples(score, dataset).labels),
        minlength=len(dataset.class_names),
    )
    fewest = score.FEWEST_OF_A_CLASS
    if not dataset.validation.size:
        # The threshold comes from trainings without one of them.
        fewest += 1
    if score.IS_FITTED_TO_DATA and counts.min() < fewest:
        held_out = _is_held_out(score, dataset)
        which = "validation" if held_out else "training"
        raise ValueError(
            f"The score {score.name!r} needs at least {fewest} {which} images "
            f"of each class; class {dataset.class_names[counts.argmin()]!r} "
            f"has {counts.min()}."
        )
