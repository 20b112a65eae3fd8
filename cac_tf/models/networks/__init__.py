# SPDX-License-Identifier: Apache-2.0
"""Backbones by name.

A file in this folder that registers a function adds a network, and so does
another package that registers one: `@networks.register` on a function of
`(num_classes, input_shape, dropout, weight_decay, seed)` that returns a Keras
model ending in logits.
"""

import lazy_loader

__all__ = [
    "register",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
