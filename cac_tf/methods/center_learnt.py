# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy with a pull to learnt centers, as in the paper's Table 5."""

from cac_tf.methods.center import Center
from cac_tf.methods.method import register


class CenterLearnt(Center):
    """Cross-entropy on logits that are pulled to centers that are trained."""

    name = "center_learnt"
    has_learnt_centers = True


register(CenterLearnt())
