# SPDX-License-Identifier: Apache-2.0
"""A page on which a trained classifier is tried, with drawings and photos."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "drawing": ["image_of_drawing", "ink_of_strokes", "takes_drawings"],
        "inspection": ["Inspection", "Inspector"],
        # Needs the extra `demo`.
        "page": ["build_page", "serve"],
        "photo": ["check_takes_photos", "image_of_photo"],
        "score_scale": ["ScoreScale"],
    },
)
