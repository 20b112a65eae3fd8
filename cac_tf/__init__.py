# SPDX-License-Identifier: Apache-2.0
"""Open-set recognition for Keras by Class Anchor Clustering."""

import os

# In a checkout `cac_tf.ops` and `cac_tf.train` lie beside this folder, not in
# it. (Installed, they lie in it, and there is no such file beside it.)
_CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if os.path.exists(os.path.join(_CHECKOUT, "train", "cac_train.py")):
    __path__.append(_CHECKOUT)

from cac_tf import calibration
from cac_tf import data
from cac_tf import evaluation
from cac_tf import export
from cac_tf import layers
from cac_tf import losses
from cac_tf import metrics
from cac_tf import models
from cac_tf import ops
from cac_tf import scores
from cac_tf.models import OpenSetClassifier
from cac_tf.models import load_model
from cac_tf.version import __version__
