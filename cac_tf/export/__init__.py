# SPDX-License-Identifier: Apache-2.0
"""Served models: SavedModels, folders for TF Serving, files for devices."""

import lazy_loader

__all__ = ["write_model_folder"]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
