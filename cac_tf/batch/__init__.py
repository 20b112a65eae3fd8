# SPDX-License-Identifier: Apache-2.0
"""Answers for many inputs: a photo, a folder, arrays, tables of images."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        # Needs the extra `beam`.
        "beam": [],
        "answers": [
            "COLUMNS",
            "Counts",
            "FORMATS",
            "answers_of",
            "check_ending",
            "copy_by_answer",
            "csv_rows",
            "rows_file",
        ],
        "classifier": ["Answer", "Classifier"],
        "inputs": [
            "Chunk",
            "NpzArray",
            "ParquetRows",
            "Photos",
            "TFRecords",
            "blocks_of",
        ],
        "parts": ["Parts", "writing"],
        "paths": ["paths_of"],
    },
)
