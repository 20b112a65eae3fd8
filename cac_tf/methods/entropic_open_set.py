# SPDX-License-Identifier: Apache-2.0
"""The entropic open-set loss, a row of the paper's Table 3."""

from cac_tf import losses
from cac_tf.methods.method import register
from cac_tf.methods.supervised import SupervisedMethod


class EntropicOpenSet(SupervisedMethod):
    """Cross-entropy, and a uniform softmax for negatives."""

    name = "entropic_open_set"
    trains_on_negatives = True
    scores = ("max_softmax", "max_logit")

    def loss(self, recipe):
        return losses.EntropicOpenSetLoss()


register(EntropicOpenSet())
