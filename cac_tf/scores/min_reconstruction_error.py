# SPDX-License-Identifier: Apache-2.0
"""The error of the best of several reconstructions."""

import keras
from keras import ops

from cac_tf.annotations import Tensor
from cac_tf.scores.registry import register
from cac_tf.scores.score import Score


@register
@keras.saving.register_keras_serializable(package="CacTf")
class MinReconstructionError(Score):
    r"""Unknown score \\(\min_k e_k\\), the smallest reconstruction error.

    \\(e_k\\) is the error of the input's reconstruction as class k. An input
    that no class can reconstruct is unknown; others get the class with the
    largest logit. It reads the output `reconstruction_errors`, (B, K), of the
    method `c2ae` or of any backbone that returns an output of this name.

    Paper: Oza, Patel, *C2AE: Class Conditioned Auto-Encoder for Open-Set
    Recognition*, CVPR 2019, its k-inference.

    Differences: the threshold is calibrated as for any score; the method's
    `threshold="extreme_values"` models the extreme values of the errors, as in
    the paper.

    Cost: O(K) per row; nothing is fitted. The errors themselves take one pass
    of the decoder per class.

    Example:

    >>> import numpy as np
    >>> score = MinReconstructionError()
    >>> np.asarray(score(np.float32([[0.25, 0.5]])))
    array([0.25], dtype=float32)
    """

    NAME, READS = "min_reconstruction_error", ("reconstruction_errors",)
    IS_NON_NEGATIVE = True

    def call(self, reconstruction_errors: Tensor) -> Tensor:
        return ops.min(reconstruction_errors, axis=-1)
