# SPDX-License-Identifier: Apache-2.0
"""Keras layers for the open-set head and for preprocessing."""

import lazy_loader

__all__ = [
    "AffineAugmentation",
    "AnchoredDistance",
    "ClassDistances",
    "ImagePreprocessing",
    "OpenSetDecision",
    "RejectionScore",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
