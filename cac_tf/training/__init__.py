# SPDX-License-Identifier: Apache-2.0
"""Training: resumed exactly after a kill, or of a head on a frozen network."""

import lazy_loader

__all__ = [
    "ClassifierTraining",
    "Stage",
    "dataset_of_features",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
