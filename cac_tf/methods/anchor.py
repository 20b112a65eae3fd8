# SPDX-License-Identifier: Apache-2.0
"""The anchor loss alone: a row of the paper's Table 4.

With learnt centers its minimum is trivial, all centers in one point. With
cross-entropy added, `center_learnt` is much like it: a pull by the squared
distance.
"""

from cac_tf import losses
from cac_tf.methods.around_centers import AroundCentersMethod
from cac_tf.methods.method import register


class Anchor(AroundCentersMethod):
    """The distance to the class's anchor as loss; class means afterwards."""

    name = "anchor"

    def loss(self, recipe):
        return losses.AnchorLoss(**self.centers(recipe))


register(Anchor())
