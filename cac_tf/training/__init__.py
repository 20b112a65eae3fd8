# SPDX-License-Identifier: Apache-2.0
"""Training that can be killed at any moment and resumed exactly."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "classifier_training": ["ClassifierTraining", "StopOnNonFiniteLoss"],
        "loop": ["TrainingRecord", "fit_resumable"],
        "pictures": ["PICTURES_IN_A_ROW", "add_rows", "read_rows"],
        "processes": ["ProcessLostError", "Processes"],
        "run": ["TrainingRun"],
        "runtime": ["Runtime"],
        "stage": ["Stage"],
    },
)
