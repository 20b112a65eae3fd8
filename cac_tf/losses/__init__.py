# SPDX-License-Identifier: Apache-2.0
"""Losses of logits and of named outputs, and their per-example functions."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "cac": [
            "AnchorLoss",
            "CACLoss",
            "CenterLoss",
            "TupletLoss",
            "anchor_loss",
            "cac_loss",
            "cac_loss_from_logits",
            "tuplet_loss",
        ],
        "cross_entropy": ["CrossEntropyLoss", "cross_entropy"],
        "entropic_open_set": [
            "EntropicOpenSetLoss",
            "entropic_open_set_loss",
        ],
        "loss": ["Loss", "find", "names", "register"],
        "objectosphere": ["ObjectosphereLoss"],
        "one_vs_all": ["OneVsAllLoss", "one_vs_all"],
        "reconstruction": ["ReconstructionLoss"],
        "symmetry": ["SymmetryLoss"],
        "unknown_class": ["UnknownClassLoss", "unknown_class_loss"],
    },
)
