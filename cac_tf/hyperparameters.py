# SPDX-License-Identifier: Apache-2.0
"""Defaults that losses, layers and recipes share."""

# Of the CAC paper, the same for all its data sets: length of the anchors
# (alpha) and weight of the anchor loss (lambda).
MAGNITUDE, ANCHOR_WEIGHT = 10.0, 0.1

# The unknown score where none is named, by the table of docs/choose.md: of a
# head on vectors or texts; of any classifier, also behind a frozen network; of
# one without features.
SCORE_OF_VECTORS = "knn"
SCORE_OF_FEATURES, SCORE_OF_LOGITS = "vim", "min_distance"

# Of the Objectosphere authors' code for MNIST: the length that features of
# known images should have (xi), and the weight of the terms of this length.
FEATURE_LENGTH, LENGTH_WEIGHT = 50.0, 1e-4
# How images are resampled; the first is the default.
INTERPOLATIONS = ("bilinear", "bicubic")
