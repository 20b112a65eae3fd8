# SPDX-License-Identifier: Apache-2.0
"""Importing this makes Keras know the classes that saved classifiers hold.

Keras finds a class by its name among those that are imported, and our packages
import theirs only when they are used.
"""

import importlib
import pkgutil

from cac_tf import layers
from cac_tf import losses
from cac_tf import metrics
from cac_tf import scores

for _room in (layers, losses, metrics, scores):
    for _module in pkgutil.iter_modules(_room.__path__, f"{_room.__name__}."):
        importlib.import_module(_module.name)
