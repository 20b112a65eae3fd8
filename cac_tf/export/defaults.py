# SPDX-License-Identifier: Apache-2.0
"""What a served model is made for unless an argument says otherwise."""

# Sizes of the batches that a server forms.
DEFAULT_BATCH_SIZES = (1, 8, 32)
# Twice the pixels of a 4,096 x 4,096 image; 100 MB as decoded bytes.
DEFAULT_MAX_PIXELS = 2**25
