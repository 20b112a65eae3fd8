# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
from cac_tf.sklearn import open_set_classifier as open_set_classifier
from cac_tf.sklearn.open_set_classifier import OpenSetClassifier as OpenSetClassifier
