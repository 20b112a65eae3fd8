# SPDX-License-Identifier: Apache-2.0
"""Open-set recognition for Keras by Class Anchor Clustering."""

import lazy_loader

from cac_tf.version import __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
