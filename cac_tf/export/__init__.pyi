# SPDX-License-Identifier: Apache-2.0
from .defaults import DEFAULT_BATCH_SIZES as DEFAULT_BATCH_SIZES
from .defaults import DEFAULT_MAX_PIXELS as DEFAULT_MAX_PIXELS
from .edge_formats import write_litert as write_litert
from .edge_formats import write_onnx as write_onnx
from .model_folder import check_version as check_version
from .model_folder import write_model_folder as write_model_folder
