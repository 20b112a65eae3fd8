# SPDX-License-Identifier: Apache-2.0
"""Losses on distances, and the CAC loss straight from logits."""

from cac_tf.losses.cac import CACLoss
from cac_tf.losses.cac import anchor_loss
from cac_tf.losses.cac import cac_loss
from cac_tf.losses.cac import cac_loss_from_logits
from cac_tf.losses.cac import tuplet_loss
from cac_tf.losses.cross_entropy import CrossEntropyLoss
from cac_tf.losses.cross_entropy import cross_entropy
