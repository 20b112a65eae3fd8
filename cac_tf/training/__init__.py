# SPDX-License-Identifier: Apache-2.0
"""Training that can be killed at any moment and resumed exactly."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
