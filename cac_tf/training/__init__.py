# SPDX-License-Identifier: Apache-2.0
"""Training that resumes exactly after a kill, also of a head alone."""

import lazy_loader

__all__ = [
    "ClassifierTraining",
    "Stage",
    "dataset_of_features",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
