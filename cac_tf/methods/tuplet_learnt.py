# SPDX-License-Identifier: Apache-2.0
"""The tuplet loss alone, with learnt centers."""

from cac_tf.methods.method import register
from cac_tf.methods.tuplet import Tuplet


class TupletLearnt(Tuplet):
    """The tuplet loss on distances to centers that are trained."""

    name = "tuplet_learnt"
    has_learnt_centers = True


register(TupletLearnt())
