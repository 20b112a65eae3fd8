# SPDX-License-Identifier: Apache-2.0
"""The open-set classifier and the benchmark's networks."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "authors_weights": ["import_authors_weights", "read_authors_weights"],
        "networks": [],
        "image_classifier": ["ImageParts", "image_parts"],
        "networks.openset_cnn": ["openset_cnn"],
        "networks.resnet18": ["resnet18"],
        "open_set_classifier": ["OpenSetClassifier"],
        "prediction": ["OpenSetPrediction", "OpenSetScores"],
        "saving": ["load_model"],
    },
)
