# SPDX-License-Identifier: Apache-2.0
"""OpenMax as in Table 1 of the CAC paper (Neal et al., ECCV 2018)."""

from typing import Any

import keras

from cac_tf.annotations import Config
from cac_tf.scores.openmax import OpenMax
from cac_tf.scores.registry import register


@register
@keras.saving.register_keras_serializable(package="CacTf")
class OpenMaxLogSumExp(OpenMax):
    r"""Unknown score \\(-\log \sum_j e^{v_j}\\) of the recalibrated logits.

    \\(v_j = z_j (1 - w_j)\\) are the logits of the N known classes as `OpenMax`
    recalibrates them, with w_j the distance's place in the Weibull tail of
    class j. The logit of "unknown" is not included. By default all classes are
    recalibrated, each with weight 1.

    This is the form behind the row "OpenMax" in the CAC paper's Table 1, whose
    numbers were computed by Neal et al.

    Paper: Bendale, Boult, *Towards Open Set Deep Networks*, CVPR 2016; Neal et
    al., *Open Set Learning with Counterfactual Images*, ECCV 2018, by their
    code.

    Differences: the OpenMax paper itself uses the probability of "unknown",
    which is `OpenMax`. Its differences apply here too.

    Cost: as for `OpenMax`.

    Args:
        tail_size, rank, shift: as for `OpenMax`, with a different default for
            `rank`.
        **kwargs: `name` of the score.

    Raises:
        ValueError: as in `OpenMax`.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> logits = 10 * np.eye(3)[labels] + rng.standard_normal((300, 3))
    >>> score = OpenMaxLogSumExp()
    >>> statistics = score.fit(labels, logits=logits)
    >>> inputs = np.float32([[10, 0, 0], [4, 4, 4]])
    >>> np.round(np.asarray(score(inputs, **statistics)))
    array([-10.,  -1.], dtype=float32)
    """

    NAME = "openmax_log_sum_exp"

    def __init__(
        self,
        tail_size: int = 20,
        rank: int | None = None,
        shift: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(tail_size, rank, shift, "log_sum_exp", **kwargs)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["form"]
        return config
