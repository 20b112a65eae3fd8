# SPDX-License-Identifier: Apache-2.0
"""A web page to try a trained classifier on drawings and photos."""

import lazy_loader

__all__: list[str] = []
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
