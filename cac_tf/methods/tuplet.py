# SPDX-License-Identifier: Apache-2.0
"""The tuplet loss alone: a row of the paper's Table 4."""

from cac_tf import losses
from cac_tf.methods.around_centers import AroundCentersMethod
from cac_tf.methods.method import register


class Tuplet(AroundCentersMethod):
    """The tuplet loss on distances to anchors; class means afterwards."""

    name = "tuplet"

    def loss(self, recipe):
        return losses.TupletLoss(**self.centers(recipe))

    def watched(self, recipe):
        return super().watched(recipe)[::-1]


register(Tuplet())
