# SPDX-License-Identifier: Apache-2.0
"""Exact open-set measures on arrays, and streaming Keras metrics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
