# SPDX-License-Identifier: Apache-2.0
"""Class splits, data sources, and the open-set experiment's data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
