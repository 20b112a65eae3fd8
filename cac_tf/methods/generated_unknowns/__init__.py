# SPDX-License-Identifier: Apache-2.0
"""What methods share that generate unknown images to train on.

No method itself: `osrci` and `g_openmax` are.
"""
