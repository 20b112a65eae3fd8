# SPDX-License-Identifier: Apache-2.0
"""ViM: a virtual logit for the residual of the features (Wang et al., 2022)."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import lazy
from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.arguments import whole_number
from cac_tf.scores.registry import register
from cac_tf.scores.score import Context
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import Sample
from cac_tf.scores.statistics import SecondMoment

linalg = lazy.module("scipy.linalg")

# The mean residual and mean largest logit use at most this many examples.
_SAMPLE_SIZE = 4096


@register
@keras.saving.register_keras_serializable(package="CacTf")
class ViM(Score):
    r"""Unknown score \\(a \lVert R^T (x - o) \rVert - \log \sum_j e^{z_j}\\).

    The columns of R span the residual space of the features x: the directions
    in which the training features have the smallest second moment about the
    origin o = -pinv(W^T) b, where all logits of the last layer are 0. (If no
    dense layer follows the features, o is their mean.) The residual is scaled
    to the logits: a is the mean largest logit of the training data divided by
    their mean residual.

    Paper: Wang, Li, Feng, Zhang, *ViM: Out-Of-Distribution with Virtual-logit
    Matching*, CVPR 2022.

    Differences: the authors put the virtual logit into a softmax, which gives
    the same ranking. Here, a comes from at most 4,096 examples, and if features
    are few, the N directions that separate the classes are never counted as
    residual (64 features of 38 classes of sentences, CAC: AUROC 0.880 with 38
    dimensions, 0.809 with half of the features).

    Cost: O(D (D - P) + N) per row for N classes, D features and P principal
    dimensions; D (D - P) + D numbers are kept. `fit` keeps D^2 numbers and
    finds their eigenvectors.

    Args:
        principal_dimensions: number of directions outside the residual space.
            None: the authors' choice, 1000 for 2048 or more features, 512 for
            768 or more, otherwise half of the features; but at least the number
            of classes, up to nine tenths of the features. With fewer than two
            examples per dimension, the number of classes or half the number of
            examples: directions found from so few examples contain them, so
            their residual says little about new inputs.
        **kwargs: `name` of the score.

    Raises:
        ValueError: fewer than one principal dimension; in `fit`, no direction
            or no residual is left, or the mean largest logit is not positive.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> features = np.float32(rng.standard_normal((400, 4)) * [9, 9, 1, 1])
    >>> logits = np.abs(features[:, :2])
    >>> score = ViM(principal_dimensions=2)
    >>> statistics = score.fit(np.zeros(400), logits=logits, features=features)
    >>> inputs = np.float32([[9, 9, 1, 1], [9, 9, 9, 9]])
    >>> near, far = np.asarray(score(logits[:2], inputs, **statistics))
    >>> bool(far > near)
    True
    """

    NAME, READS = "vim", ("logits", "features")
    IS_FITTED_TO_DATA = True

    def __init__(
        self, principal_dimensions: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if principal_dimensions is not None:
            principal_dimensions = whole_number(
                "principal_dimensions", principal_dimensions
            )
        self.principal_dimensions = principal_dimensions

    def start(self, context: Context) -> Any:
        return SecondMoment(), Sample(_SAMPLE_SIZE)

    def update(self, kept: Any, batch: KnownBatch) -> None:
        moment, sample = kept
        moment.add(batch["features"])
        largest = batch["logits"].max(axis=-1)
        together = np.zeros_like(batch.labels)
        sample.add(batch.keys, together, batch["features"], largest)

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        moment, sample = kept
        _, features, largest_logits = sample.arrays()
        origin = moment.sum / moment.count
        if context.last_layer is not None:
            kernel = np.float64(context.last_layer.kernel)
            origin = -np.linalg.pinv(kernel.T) @ context.last_layer.bias
        width = len(origin)
        principal = self._principal_dimensions(
            width, moment.count, context.num_classes
        )
        about_origin = moment.about(origin)
        length = np.sqrt(np.trace(about_origin))
        # Eigenvalues ascend. (All vectors: a part of them takes twice as long.)
        _, directions = linalg.eigh(
            about_origin, driver="evd", overwrite_a=True, check_finite=False
        )
        residual_space = directions[:, : width - principal]
        offsets = np.float64(features) - origin
        residuals = np.linalg.norm(offsets @ residual_space, axis=-1)
        if residuals.mean() <= 1e-6 * length:
            raise ValueError(
                f"All {moment.count} examples lie in a subspace of "
                f"{principal} of the {width} feature dimensions, so there is "
                "no residual for ViM: choose fewer principal_dimensions."
            )
        if largest_logits.mean() <= 0:
            raise ValueError(
                "ViM scales the residual to the largest logits, whose mean "
                f"over the examples must be positive; it is "
                f"{largest_logits.mean():.3g}."
            )
        scale = largest_logits.mean(dtype="float64") / residuals.mean()
        return {"origin": origin, "residual_space": scale * residual_space}

    def _principal_dimensions(self, width, count, num_classes):
        principal = self.principal_dimensions
        if principal is None:
            principal = next(
                dimensions
                for at_least, dimensions in (
                    (2048, 1000),
                    (768, 512),
                    (0, width // 2),
                )
                if width >= at_least
            )
            principal = max(principal, min(num_classes, width * 9 // 10))
            if principal > count // 2:
                principal = max(1, min(num_classes, count // 2))
        if principal >= width:
            raise ValueError(
                f"ViM needs at least one residual dimension, but {principal} "
                f"principal dimensions of {width} features leave none."
            )
        return principal

    def call(
        self,
        logits: Tensor,
        features: Tensor,
        *,
        origin: Tensor,
        residual_space: Tensor,
    ) -> Tensor:
        offsets = features - origin
        # This includes the scale.
        residual = ops.matmul(offsets, residual_space)
        length = ops.sqrt(ops.sum(ops.square(residual), axis=-1))
        return length - ops.logsumexp(logits, axis=-1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "principal_dimensions": self.principal_dimensions,
        }
