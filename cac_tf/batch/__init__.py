# SPDX-License-Identifier: Apache-2.0
"""Answers for many inputs: a photo, a folder, arrays, tables of images."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
