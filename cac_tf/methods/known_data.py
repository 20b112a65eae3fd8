# SPDX-License-Identifier: Apache-2.0
"""What a trained classifier still learns from known data."""


def fit_to_known_data(model, dataset, batch_size=128):
    """Re-centres a classifier as the authors do, and fits its score.

    The class means of a model that was trained with mirrored images are taken
    over each training image and its mirror image; the score is fitted to the
    images as they are.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`.
        batch_size: of the predictions.

    Returns:
        (N,) int64 numbers of images that each class mean was taken over.
    """
    examples = dataset.train
    with_mirrors = getattr(model.augmentation, "flip", 0.0) > 0

    def batches():
        for start in range(0, examples.size, batch_size):
            rows = slice(start, start + batch_size)
            images, labels = examples.images[rows], examples.labels[rows]
            yield images, labels
            if with_mirrors:
                yield images[:, :, ::-1], labels

    counts = model.fit_centres(batches())
    if with_mirrors or model.score.WANTS_HELD_OUT_DATA:
        fit_score(model, dataset)
    return counts


def fit_score(model, dataset):
    """Fits a classifier's score alone, if it learns from known data.

    Args:
        model: `OpenSetClassifier`.
        dataset: `OpenSetDataset`: its validation part serves a score that
            wants data which was not trained on.
    """
    held_out = model.score.WANTS_HELD_OUT_DATA
    model.fit_score(*(dataset.validation if held_out else dataset.train))
