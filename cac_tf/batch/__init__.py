# SPDX-License-Identifier: Apache-2.0
"""Classifies many inputs: photos, folders, arrays, tables of images."""

import lazy_loader

__all__ = ["Classifier", "classify_files", "rows_file"]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
