# SPDX-License-Identifier: Apache-2.0
"""Rules that turn a classifier's outputs into an unknown score.

A file in this folder that registers a `Score` adds a score, and so does another
package that registers one (`scores.register`). A line in `__init__.pyi` makes
its class an attribute of this package: `scores.KNN(neighbours=5)`.
"""

import lazy_loader

__all__ = [
    "KNN",
    "Energy",
    "Mahalanobis",
    "OpenMax",
    "RelativeMahalanobis",
    "Score",
    "ViM",
    "names",
    "register",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
