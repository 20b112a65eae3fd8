# SPDX-License-Identifier: Apache-2.0
"""Open-set recognition for Keras by Class Anchor Clustering."""

from os import path as _path

# In a checkout `cac_tf.ops` and `cac_tf.train` lie beside this folder, not in
# it. (Installed, they lie in it, and there is no such file beside it.)
_CHECKOUT = _path.dirname(_path.dirname(_path.abspath(__file__)))
if _path.exists(_path.join(_CHECKOUT, "train", "cac_train.py")):
    __path__.append(_CHECKOUT)

from cac_tf import beside_keras
from cac_tf import lazy
from cac_tf.version import __version__

lazy.package(
    __name__,
    {
        "batch": [],
        "data": [],
        "decision": [],
        "demo": [],
        "experiments": [],
        "export": [],
        "layers": [],
        "losses": [],
        "methods": [],
        "metrics": [],
        "models": ["OpenSetClassifier", "load_model"],
        "ops": [],
        "reporting": [],
        "scores": [],
        "sklearn": [],
        "training": [],
    },
)
beside_keras.import_classes()
