# SPDX-License-Identifier: Apache-2.0
"""Softmax cross-entropy: the baselines softmax, maximum logit and OpenMax.

Trained with the same recipes as CAC: the baselines in the paper's tables were
trained for 30 epochs without augmentation, and are weaker for it.
"""

from cac_tf.losses import CrossEntropyLoss
from cac_tf.methods.method import Method
from cac_tf.methods.recipe import Recipe
from cac_tf.metrics import CrossEntropy

METHOD = Method(
    name="cross_entropy",
    recipe=Recipe,
    scores=("max_softmax", "max_logit", "openmax"),
    loss=lambda recipe: CrossEntropyLoss(),
    monitor=CrossEntropy,
)
