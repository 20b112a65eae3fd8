# SPDX-License-Identifier: Apache-2.0
from . import batch as batch
from . import data as data
from . import decision as decision
from . import experiments as experiments
from . import export as export
from . import layers as layers
from . import losses as losses
from . import methods as methods
from . import metrics as metrics
from . import models as models
from . import open_world as open_world
from . import ops as ops
from . import reporting as reporting
from . import scores as scores
from . import sklearn as sklearn
from . import training as training
from .models import OpenSetClassifier as OpenSetClassifier
from .models import load_model as load_model

__version__: str
