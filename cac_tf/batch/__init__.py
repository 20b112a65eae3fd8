# SPDX-License-Identifier: Apache-2.0
"""Answers for files: a photo, a folder, a list of paths."""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "answers": [
            "COLUMNS",
            "Counts",
            "answer_files",
            "copy_by_answer",
            "csv_rows",
            "rows_file",
        ],
        "file_classifier": ["FileAnswer", "FileClassifier"],
        "paths": ["paths_of"],
    },
)
