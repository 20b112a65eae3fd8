# SPDX-License-Identifier: Apache-2.0
"""The open-set classifier with the interface of scikit-learn."""

from cac_tf import lazy

lazy.package(
    __name__,
    {"open_set_classifier": ["OpenSetClassifier"]},
)
