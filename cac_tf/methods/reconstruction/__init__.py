# SPDX-License-Identifier: Apache-2.0
"""What methods share that reconstruct images.

No method itself: `c2ae`, `crosr` and `gfror` are.
"""
