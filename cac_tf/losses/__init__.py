# SPDX-License-Identifier: Apache-2.0
"""Losses that name the outputs they read, and their per-example functions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
