# SPDX-License-Identifier: Apache-2.0
"""Class splits, data sources, and the open-set experiment's data."""

import lazy_loader

__all__ = [
    "DataOptions",
    "Examples",
    "OpenSetDataset",
    "load_open_set_dataset",
    "sources",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
