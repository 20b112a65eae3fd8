# SPDX-License-Identifier: Apache-2.0
"""Unknown scores of training examples, each by a model that has not seen it.

Where examples are few, none are set apart for validation. The training is
repeated without a fifth of them at a time, and the scores of that fifth stand
for those of new inputs. The threshold that they give is the model's, which was
trained with all: its scores are of more examples, so that new known inputs are
accepted about as often as asked, or more often. (Scores of the training
examples by the model itself accept far too few: a training moves its own
examples away from the unknown.) benchmarks/few_examples.py measures it.
"""

import dataclasses

import numpy as np

FOLDS = 5


def cross_fitted_scores(made, dataset, run):
    """(n,) float32 unknown scores of the training examples.

    Args:
        made: function of a data set and a `TrainingRun` that trains, and gives
            an `OpenSetClassifier`.
        dataset: `OpenSetDataset` without a validation part.
        run: `TrainingRun` of the model itself; the further trainings keep
            their checkpoints beside its own.
    """
    train = dataset.train
    folds = folds_of(train.labels, run.seed)
    scores = np.empty(train.size, "float32")
    for fold in range(FOLDS):
        held = np.flatnonzero(folds == fold)
        model = made(
            dataclasses.replace(
                dataset, train=train.take(np.flatnonzero(folds != fold))
            ),
            run.beside(f"without_{fold}"),
        )
        found = model.predict_scores(train.take(held).images)
        scores[held] = found.unknown_score
    return scores


def folds_of(labels, seed):
    """(n,) in 0...FOLDS-1: the examples of a class are in different folds.

    Args:
        labels: (n,) class indices.
        seed: of the choice.

    Example:

    >>> folds_of(np.array([0, 0, 1, 1, 1, 1, 1]), seed=0)[2:].tolist()
    [4, 1, 0, 2, 3]
    """
    places = np.random.default_rng(seed).permutation(len(labels))
    folds = np.empty(len(labels), "int64")
    folds[np.lexsort((places, labels))] = np.arange(len(labels)) % FOLDS
    return folds
