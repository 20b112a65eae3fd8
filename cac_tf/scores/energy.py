# SPDX-License-Identifier: Apache-2.0
"""The free energy of the logits (Liu et al., NeurIPS 2020)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class Energy(Score):
    r"""Unknown score \\(-T \log \sum_j e^{z_j / T}\\).

    Paper: Liu, Wang, Owens, Li, *Energy-based Out-of-distribution Detection*,
    NeurIPS 2020.

    Differences: the paper also fine-tunes the network on outliers.

    Cost: O(N) per row for N classes; nothing is kept.

    Args:
        temperature: T, at least 1e-30; as T approaches 0, the score
            approaches that of `MaxLogit`.
        **kwargs: `name` of the score.

    Raises:
        ValueError: a temperature that is smaller or not finite.

    Example:

    >>> np.asarray(Energy()(np.float32([[2.0, 2.0]]))).round(4)
    array([-2.6931], dtype=float32)
    """

    NAME, READS = "energy", ("logits",)

    def __init__(self, temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # With less, logits divided by it may leave the range of float32.
        if not (np.isfinite(temperature) and temperature >= 1e-30):
            raise ValueError(
                "temperature must be finite and at least 1e-30; got "
                f"{temperature!r}."
            )
        self.temperature = float(temperature)

    def call(self, logits: Tensor) -> Tensor:
        scaled = logits / self.temperature
        return -self.temperature * ops.logsumexp(scaled, axis=-1)

    def get_config(self) -> Config:
        return {**super().get_config(), "temperature": self.temperature}
