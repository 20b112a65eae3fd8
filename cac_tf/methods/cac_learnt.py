# SPDX-License-Identifier: Apache-2.0
"""CAC with learnt centers, as in the paper's Table 5."""

from cac_tf import losses
from cac_tf.methods.cac import ClassAnchorClustering
from cac_tf.methods.method import register


class LearntCAC(ClassAnchorClustering):
    """The CAC loss on distances to trained centers, and cross-entropy.

    The paper adds cross-entropy where centers are learnt.
    """

    name = "cac_learnt"
    has_learnt_centers = True
    has_cross_entropy = True

    def loss(self, recipe):
        return [super().loss(recipe), losses.CrossEntropyLoss()]


register(LearntCAC())
