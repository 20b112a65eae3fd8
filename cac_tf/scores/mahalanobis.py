# SPDX-License-Identifier: Apache-2.0
"""Mahalanobis distance with a shared covariance (Lee et al., NeurIPS 2018)."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.layers.anchored_distance import dense_distances
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import ClassMoments
from cac_tf.scores.statistics import Sample
from cac_tf.scores.statistics import SecondMoment

linalg = lazy.module("scipy.linalg")
covariances = lazy.module("sklearn.covariance")

# The fourth moment in the shrinkage is taken over at most this many examples.
_SAMPLE_SIZE = 4096
# How many times the rounding of a sum of D terms a variance must exceed.
_NOISE = 10


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Mahalanobis(Score):
    r"""Unknown score \\(\min_k (x - \mu_k)^T \Sigma^{-1} (x - \mu_k)\\).

    Uses the mean features of each class and one covariance about these means,
    shrunk by Ledoit and Wolf's formula (*A Well-Conditioned Estimator for
    Large-Dimensional Covariance Matrices*, 2004). As the means of N classes
    come from the same n examples, they count as n - N examples. With fewer
    examples than features, a warning states the amount of shrinkage.

    Paper: Lee, Lee, Lee, Shin, *A Simple Unified Framework for Detecting
    Out-of-Distribution Samples and Adversarial Attacks*, NeurIPS 2018.

    Differences: the features of one layer instead of a
    combination of several, no perturbation of the input, and the shrinkage.

    Cost: O(D^2 + N D) per row for N classes and D features; D^2 + N D + D
    numbers are kept. `fit` keeps D^2 numbers and a Cholesky decomposition.

    Args:
        shrinkage: "ledoit_wolf"; or None for no shrinkage, as in the paper,
            which needs more examples than features.
        **kwargs: `name` of the score.

    Raises:
        ValueError: another shrinkage; in `fit`, a class without examples,
            examples equal to their class means, or without shrinkage a
            covariance that has no inverse.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 2
    >>> features = rng.standard_normal((400, 3)) + 9 * labels[:, None]
    >>> score = Mahalanobis()
    >>> statistics = score.fit(labels, features=features)
    >>> inputs = np.float32([[9, 9, 9], [4, 4, 4]])
    >>> near, far = np.asarray(score(inputs, **statistics))
    >>> bool(near < 1 and far > 40)
    True
    """

    NAME, READS = "mahalanobis", ("features",)
    IS_FITTED_TO_DATA = True
    IS_NON_NEGATIVE = True
    ENROLLS = True
    _IS_RELATIVE = False

    def __init__(
        self, shrinkage: str | None = "ledoit_wolf", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if shrinkage not in ("ledoit_wolf", None):
            raise ValueError(
                f'shrinkage must be "ledoit_wolf" or None; got {shrinkage!r}.'
            )
        self.shrinkage = shrinkage

    def start(self, context: Context) -> Any:
        return (
            ClassMoments(context.num_classes),
            SecondMoment(),
            Sample(_SAMPLE_SIZE),
        )

    def update(self, kept: Any, batch: KnownBatch) -> None:
        by_class, moment, sample = kept
        by_class.add(batch["features"], batch.labels)
        moment.add(batch["features"])
        together = np.zeros_like(batch.labels)
        sample.add(batch.keys, together, batch["features"], batch.labels)

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        by_class, moment, sample = kept
        width, counts, means = len(moment.sum), by_class.counts, by_class.means
        empty = [
            name
            for name, count in zip(context.class_names, counts, strict=True)
            if not count
        ]
        if empty:
            raise ValueError(
                "The Mahalanobis distance needs examples of each class; "
                f"these classes have none: {', '.join(empty)}."
            )
        center = moment.sum / moment.count
        offsets, overall = means - center, moment.about(center)
        of_means = (offsets.T * (counts / moment.count)) @ offsets
        covariance = overall - of_means
        if not np.trace(covariance) > 1e-9 * np.trace(overall):
            raise ValueError(
                "The Mahalanobis distance needs examples that differ within "
                "their classes; here, all examples of each class are "
                "identical."
            )
        shrunk = covariance
        if self.shrinkage is not None:
            _, features, labels = sample.arrays()
            offsets_of_some = np.float64(features) - means[labels]
            lengths = np.sum(offsets_of_some**2, axis=-1)
            # (Not 0, where examples differ within a class.)
            freedom = moment.count - len(means)
            shrinkage = _shrinkage(covariance, np.mean(lengths**2), freedom)
            shrunk = covariances.shrunk_covariance(
                covariance * (moment.count / freedom), shrinkage
            )
        # About the origin: what rounding is relative to.
        sizes = np.diag(moment.products) / moment.count
        whitening = _whitening(shrunk, sizes)
        if self.shrinkage is not None and moment.count < width:
            warnings.warn(
                f"The covariance of {width} features was estimated from only "
                f"{moment.count} examples: it is shrunk by {shrinkage:.3f} "
                "towards a multiple of the identity.",
                stacklevel=2,
            )
        statistics: dict[str, ArrayLike] = {
            "center": center,
            "whitening": whitening,
            "means": offsets @ whitening,
        }
        if self._IS_RELATIVE:
            # Shrunk alike: what does not separate the classes cancels.
            statistics["background"] = _whitening(shrunk + of_means, sizes)
        return statistics

    def call(
        self,
        features: Tensor,
        *,
        center: Tensor,
        whitening: Tensor,
        means: Tensor,
    ) -> Tensor:
        offsets = features - center
        whitened = ops.matmul(offsets, whitening)
        distances = dense_distances(whitened, means)
        return ops.square(ops.min(distances, axis=-1))

    def example_rows(
        self, *values: np.ndarray, **statistics: np.ndarray
    ) -> np.ndarray:
        (features,) = values
        offsets = np.float64(features) - statistics["center"]
        return np.asarray(offsets @ statistics["whitening"], "float32")

    def compare(  # type: ignore[override]
        self,
        values: Sequence[Tensor],
        predicted: Tensor,
        classes: Sequence[Tensor],
        *,
        center: Tensor,
        whitening: Tensor,
        means: Tensor,
    ) -> Tensor:
        # The covariance stays that of the fit: no other distance changes.
        whitened = ops.matmul(values[0] - center, whitening)
        all_means = ops.concatenate([means, *classes], axis=0)
        distances = ops.square(dense_distances(whitened, all_means))
        return super().compare([distances], predicted, classes)

    def get_config(self) -> Config:
        return {**super().get_config(), "shrinkage": self.shrinkage}


def _whitening(covariance, sizes):
    """(D, D) matrix that makes offsets of this covariance white.

    Args:
        covariance: (D, D).
        sizes: (D,) mean squares of the features.

    Raises:
        ValueError: the covariance has no inverse, or only by rounding.
    """
    width = len(covariance)
    try:
        root = linalg.cholesky(covariance, lower=True)
        noise = _NOISE * width * np.finfo("float64").eps * sizes
        is_singular = (np.diag(root) ** 2 <= noise).any()
    except np.linalg.LinAlgError:
        is_singular = True
    if is_singular:
        raise ValueError(
            f"The covariance of {width} features is singular. Without "
            "shrinkage, the Mahalanobis distance needs more examples than "
            "features, and linearly independent features."
        )
    inverse, _ = linalg.lapack.dtrtri(root, lower=True)
    return inverse.T


def _shrinkage(covariance, mean_fourth_power, count):
    """Ledoit and Wolf's shrinkage, in [0, 1], from statistics of one pass.

    (Scikit-learn's function needs all examples at once.)

    Args:
        covariance: (D, D) about the class means, a mean over the examples.
        mean_fourth_power: mean of the fourth power of the examples' Euclidean
            distances from their class means.
        count: number of examples, less that of the means.
    """
    width = len(covariance)
    squares = np.sum(covariance**2)
    target = np.trace(covariance) / width
    # The distance of the estimate from the target, and its part due to chance.
    distance = (squares - width * target**2) / width
    by_chance = (mean_fourth_power - squares) / (width * count)
    by_chance = min(by_chance, distance)
    return by_chance / distance if by_chance > 0 else 0.0
