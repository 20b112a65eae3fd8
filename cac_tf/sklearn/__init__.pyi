# SPDX-License-Identifier: Apache-2.0
from .open_set_classifier import OpenSetClassifier as OpenSetClassifier
