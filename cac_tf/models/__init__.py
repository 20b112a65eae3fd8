# SPDX-License-Identifier: Apache-2.0
"""The open-set classifier and the benchmark's networks."""

import lazy_loader

__all__ = [
    "OpenSetPrediction",
    "networks",
    "openset_cnn",
    "pretrained_backbone",
    "resnet18",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
