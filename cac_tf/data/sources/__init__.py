# SPDX-License-Identifier: Apache-2.0
"""Sources of labeled images: one file per source.

A file in this folder that registers a `DataSource` adds a source, and so does
another package that registers one (`sources.register`); no other file has to
change.
"""

import lazy_loader

__all__ = [
    "DataSource",
    "LabelledParts",
    "register",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
