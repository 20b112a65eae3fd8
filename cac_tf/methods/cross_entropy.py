# SPDX-License-Identifier: Apache-2.0
"""Softmax cross-entropy: the baselines softmax, maximum logit and OpenMax.

Trained with the same recipes as CAC: the baselines in the paper's tables were
trained for 30 epochs without augmentation, and are weaker for it.
"""

from cac_tf import losses
from cac_tf.hyperparameters import SCORE_OF_FEATURES
from cac_tf.hyperparameters import SCORE_OF_VECTORS
from cac_tf.methods.method import register
from cac_tf.methods.supervised import SupervisedMethod


class SoftmaxCrossEntropy(SupervisedMethod):
    """Cross-entropy on the logits."""

    name = "cross_entropy"
    scores = (
        "max_softmax",
        "max_logit",
        "openmax",
        "openmax_log_sum_exp",
    )
    score_of_vectors = SCORE_OF_VECTORS
    score_of_frozen_images = SCORE_OF_FEATURES

    def loss(self, recipe):
        return losses.CrossEntropyLoss()


register(SoftmaxCrossEntropy())
