# SPDX-License-Identifier: Apache-2.0
"""One logistic loss per class, the training behind "Softmax" in Table 1.

That row was trained for 30 epochs without augmentation, by Adam, at 32 pixels
(Neal et al., ECCV 2018). Here the loss is theirs, and the recipe that of all
methods, so that losses are compared and not recipes.
"""

from cac_tf import losses
from cac_tf.methods.method import register
from cac_tf.methods.supervised import SupervisedMethod


class OneVsAll(SupervisedMethod):
    """Each class against all others, on the logits."""

    name = "one_vs_all"
    scores = (
        "max_softmax",
        "max_logit",
        "openmax",
        "openmax_log_sum_exp",
    )

    def loss(self, recipe):
        return losses.OneVsAllLoss()


register(OneVsAll())
