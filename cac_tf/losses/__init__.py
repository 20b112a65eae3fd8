# SPDX-License-Identifier: Apache-2.0
"""Losses that name the outputs they read, and their per-example functions."""

import lazy_loader

__all__ = [
    "CACLoss",
    "EntropicOpenSetLoss",
    "Loss",
    "UnknownClassLoss",
    "cac_loss_from_logits",
    "register",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
