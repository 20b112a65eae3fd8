# SPDX-License-Identifier: Apache-2.0
"""The anchor loss alone: a row of the paper's Table 4.

With learnt centres its minimum is trivial, all centres in one point. With
cross-entropy added, `center_learnt` is much like it: a pull by the squared
distance.
"""

from cac_tf import losses
from cac_tf.methods.around_centres import AroundCentresMethod
from cac_tf.methods.method import register


class Anchor(AroundCentresMethod):
    """The distance to the own anchor; class means afterwards."""

    name = "anchor"

    def loss(self, recipe):
        return losses.AnchorLoss()


register(Anchor())
