# SPDX-License-Identifier: Apache-2.0
"""A page on which a trained classifier is tried, with drawings and photos."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
