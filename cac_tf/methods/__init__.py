# SPDX-License-Identifier: Apache-2.0
"""How models are trained and scored: one file or folder per method.

A file in this folder that registers a `Method` adds a method, and so does
another package that registers one (`methods.register`); no other file has to
change.
"""

import lazy_loader

__all__ = [
    "BaseRecipe",
    "Method",
    "Recipe",
    "field",
    "register",
]
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)
