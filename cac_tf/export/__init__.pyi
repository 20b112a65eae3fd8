# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.export import defaults as defaults
from cac_tf.export import edge_formats as edge_formats
from cac_tf.export import model_folder as model_folder
from cac_tf.export import saved_model as saved_model
from cac_tf.export.defaults import DEFAULT_BATCH_SIZES as DEFAULT_BATCH_SIZES
from cac_tf.export.defaults import DEFAULT_MAX_PIXELS as DEFAULT_MAX_PIXELS
from cac_tf.export.edge_formats import write_litert as write_litert
from cac_tf.export.edge_formats import write_onnx as write_onnx
from cac_tf.export.model_folder import check_version as check_version
from cac_tf.export.model_folder import write_model_folder as write_model_folder
from cac_tf.export.saved_model import graphs_and_description as graphs_and_description
from cac_tf.export.saved_model import write_saved_model as write_saved_model
