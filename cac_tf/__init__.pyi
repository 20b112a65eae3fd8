# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf import batch as batch
from cac_tf import data as data
from cac_tf import decision as decision
from cac_tf import demo as demo
from cac_tf import experiments as experiments
from cac_tf import export as export
from cac_tf import layers as layers
from cac_tf import losses as losses
from cac_tf import methods as methods
from cac_tf import metrics as metrics
from cac_tf import models as models
from cac_tf import ops as ops
from cac_tf import reporting as reporting
from cac_tf import scores as scores
from cac_tf import sklearn as sklearn
from cac_tf import training as training
from cac_tf.models import OpenSetClassifier as OpenSetClassifier
from cac_tf.models import load_model as load_model
from cac_tf.version import __version__ as __version__
