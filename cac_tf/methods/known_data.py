# SPDX-License-Identifier: Apache-2.0
"""What a trained classifier learns from known data without gradients."""

from cac_tf import lazy

# It needs Keras, which `--help` does without.
input_checks = lazy.module("cac_tf.models.input_checks")


def fit_to_known_data(model, dataset):
    """Re-centers a classifier as the authors do, and fits its score.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`.

    Returns:
        (N,) int64 numbers of images that each class mean was taken over.
    """
    if _sees_mirror_images(model) or model.score.WANTS_HELD_OUT_DATA:
        fit_score(model, dataset)
        return recenter(model, dataset)
    return model.fit_centers(*dataset.train)


def recenter(model, dataset, batch_size=128):
    """Replaces the anchors by class means.

    For a model that was trained with mirrored images, the means are taken over
    each training image and its mirror image.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`.
        batch_size: batch size of the predictions.

    Returns:
        (N,) int64 numbers of images that each class mean was taken over.
    """
    examples = dataset.train
    with_mirrors = _sees_mirror_images(model)

    def batches():
        # These decode streamed images ahead.
        for images, labels, _ in input_checks.iterate_batches(
            examples.images, examples.labels, batch_size
        ):
            yield images, labels
            if with_mirrors:
                yield images[:, :, ::-1], labels

    return model.fit_centers(batches(), with_score=False)


def fit_score(model, dataset):
    """Fits only a classifier's score, if it learns from known data.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`. Its training images are used, without
            augmentation; its validation images for a score that wants data
            not used for training.
    """
    held_out = model.score.WANTS_HELD_OUT_DATA
    model.fit_score(*(dataset.validation if held_out else dataset.train))


def _sees_mirror_images(model):
    return getattr(model.augmentation, "flip", 0.0) > 0
