# SPDX-License-Identifier: Apache-2.0
"""Where labelled images come from: one file per source.

A file in this folder that registers a `DataSource` adds a source, and so does
another package that registers one (`sources.register`); no other file has to
change.
"""

from cac_tf import lazy

lazy.package(
    __name__,
    {
        "source": [
            "ClassChoice",
            "ClassIds",
            "DataSource",
            "LabelledParts",
            "find",
            "names",
            "register",
            "source_of",
            "what_is_taken",
        ],
    },
)
