# SPDX-License-Identifier: Apache-2.0
"""OpenMax of a classifier with a class "unknown", of G-OpenMax (Ge et al.)."""

import keras
import numpy as np

from cac_tf.scores.openmax_log_sum_exp import OpenMaxLogSumExp
from cac_tf.scores.registry import register
from cac_tf.scores.score import KnownBatch


@register
@keras.saving.register_keras_serializable(package="CacTf")
class UnknownClassOpenMax(OpenMaxLogSumExp):
    r"""Unknown score \\(\log p_{N+1} - \log(1 - p_{N+1})\\) by OpenMax.

    p is the softmax of the N logits, recalibrated as in `OpenMax`, and of the
    logit of the class "unknown", which is 0. The score is the log-odds of that
    class; \\(p_{N+1}\\) itself would rank inputs the same way but round to 1
    for many.

    It is meant for models trained with `losses.UnknownClassLoss`; for others
    the last logit has no meaning. Training examples that such a model considers
    unknown, because all their logits are below 0, are not correctly classified,
    and `fit` leaves them out.

    A logit of 0 stays 0 however it is scaled, so the class "unknown" needs no
    mean and no Weibull tail. The amount removed from the known classes is not
    added to it: it is a class like the others. Therefore the score equals
    \\(-\log \sum_j e^{v_j}\\), that of `OpenMaxLogSumExp`, and with `rank=None`
    that of Table 1 of the CAC paper, but fitted to other examples and for
    another training.

    Paper: Ge, Demyanov, Chen, Garnavi, *Generative OpenMax for Multi-Class Open
    Set Classification*, BMVC 2017.

    Differences: there is no code by the authors to compare with. That the row
    of Table 1 was scored like this is inferred from the code of Neal et al.
    (ECCV 2018), as are `rank=None` and the log-sum-exp. Adding nothing to
    "unknown" follows a public re-implementation, which, however, scores by the
    largest known probability.

    Cost: as for `OpenMax`.

    Args:
        tail_size, rank, shift: as for `OpenMax`; ranks are those of the N known
            classes.
        **kwargs: `name` of the score.

    Raises:
        ValueError: as in `OpenMax`.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> logits = 12 * np.eye(3)[labels] - 6 + rng.standard_normal((300, 3))
    >>> score = UnknownClassOpenMax()
    >>> statistics = score.fit(labels, logits=logits)
    >>> inputs = np.float32([[6, -6, -6], [-6, -6, -6], [6, 6, 6]])
    >>> np.round(np.asarray(score(inputs, **statistics)))
    array([-6., -1., -1.], dtype=float32)
    """

    NAME = "unknown_class_openmax"
    _CORRECT = (
        "correctly classified examples that are not classified as unknown "
        "(their largest logit is above 0)"
    )

    def is_correct(self, batch: KnownBatch) -> np.ndarray:
        return batch.is_correct & (batch["logits"].max(axis=-1) > 0.0)
