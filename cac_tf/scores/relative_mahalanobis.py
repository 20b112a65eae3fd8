# SPDX-License-Identifier: Apache-2.0
"""The relative Mahalanobis distance (Ren et al., 2021)."""

from collections.abc import Sequence

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.mahalanobis import Mahalanobis
from cac_tf.scores.registry import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class RelativeMahalanobis(Mahalanobis):
    r"""Unknown score \\(\min_k M_k(x) - M_0(x)\\).

    M_k is the distance of `Mahalanobis`, and M_0 the distance to a single
    normal distribution of all training features. Distance along directions that
    do not separate the classes appears in both terms and cancels. The score is
    therefore meant for near unknowns; far ones may be accepted. The covariance
    of M_0 is the shrunk one of M_k plus that of the class means: shrunk
    separately, it would differ in every direction, and nothing would cancel.

    Paper: Ren, Fort, Liu, Roy, Padhy, Lakshminarayanan, *A Simple Fix to
    Mahalanobis Distance for Improving Near-OOD Detection*, 2021.

    Differences: the paper does not shrink, which is `shrinkage=None` here. With
    few examples for many features, the two forms rank inputs differently.

    Cost: O(D^2 + N D) per row for N classes and D features, with two products
    where `Mahalanobis` has one; 2 D^2 + N D + D numbers are kept.

    Args:
        shrinkage: "ledoit_wolf" or None, as for `Mahalanobis`.
        **kwargs: `name` of the score.

    Raises:
        ValueError: as for `Mahalanobis`.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 2
    >>> features = rng.standard_normal((400, 3)) + 9 * labels[:, None]
    >>> score = RelativeMahalanobis()
    >>> statistics = score.fit(labels, features=features)
    >>> inputs = np.float32([[9, 9, 9], [4, 4, 4]])
    >>> near, far = np.asarray(score(inputs, **statistics))
    >>> bool(near < 1 and far > 40)
    True
    """

    NAME, IS_NON_NEGATIVE, _IS_RELATIVE = "relative_mahalanobis", False, True

    def call(  # type: ignore[override]
        self, features: Tensor, *, background: Tensor, **others: Tensor
    ) -> Tensor:
        overall = _overall(features, others["center"], background)
        return super().call(features, **others) - overall

    def compare(  # type: ignore[override]
        self,
        values: Sequence[Tensor],
        predicted: Tensor,
        classes: Sequence[Tensor],
        *,
        background: Tensor,
        **others: Tensor,
    ) -> Tensor:
        overall = _overall(values[0], others["center"], background)
        found = super().compare(values, predicted, classes, **others)
        return found - overall[:, None]


def _overall(features, center, background):
    """(B,) M_0."""
    whitened = ops.matmul(features - center, background)
    return ops.sum(ops.square(whitened), axis=-1)
