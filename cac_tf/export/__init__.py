# SPDX-License-Identifier: Apache-2.0
"""Served models: SavedModels, folders for TF Serving, files for devices."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "defaults": ["DEFAULT_BATCH_SIZES", "DEFAULT_MAX_PIXELS"],
        "edge_formats": ["write_litert", "write_onnx"],
        "model_folder": ["check_version", "write_model_folder"],
        "saved_model": ["graphs_and_description", "write_saved_model"],
    },
)
