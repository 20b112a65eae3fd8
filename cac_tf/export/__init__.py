# SPDX-License-Identifier: Apache-2.0
"""SavedModels for TF Serving."""

from cac_tf.export.model_folder import write_model_folder
