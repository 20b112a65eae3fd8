# SPDX-License-Identifier: Apache-2.0
"""What a served model is made for unless an argument says otherwise."""

from cac_tf.data.image_formats import MAX_PIXELS

# Sizes of the batches that a server forms.
DEFAULT_BATCH_SIZES = (1, 8, 32)
# As in training.
DEFAULT_MAX_PIXELS = MAX_PIXELS
