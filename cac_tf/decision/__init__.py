# SPDX-License-Identifier: Apache-2.0
"""The decision between known classes and "unknown": rule and threshold."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
