# SPDX-License-Identifier: Apache-2.0
"""After the rejection: grouping unknown inputs, detecting changes."""

import lazy_loader

__all__ = ["Monitor", "group"]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
