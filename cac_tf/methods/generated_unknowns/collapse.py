# SPDX-License-Identifier: Apache-2.0
"""Whether generated images hardly differ from each other."""

import numpy as np

# The spread of the generator's images, as a share of that of real images,
# below which nobody could tell them apart.
_SMALLEST_SPREAD = 0.02


def check_not_collapsed(made, images, what, advice):
    """Raises ValueError if generated images hardly differ from each other.

    Args:
        made: (n, H, W, C) generated images in [0, 1].
        images: (m, H, W, C) real images, 0...255.
        what: what they are, for the message.
        advice: what to change, for the message.

    Example:

    >>> images = np.arange(8).reshape(2, 2, 2, 1)
    >>> check_not_collapsed(images / 255, images, "", "")
    >>> check_not_collapsed(  # doctest: +ELLIPSIS
    ...     0 * images, images, "two images", "Raise gan_epochs.")
    Traceback (most recent call last):
    ...
    ValueError: The generator has collapsed: over two images, a pixel ...
    """
    spread = np.float64(made).std(axis=0).mean()
    wanted = (np.float64(images) / 255.0).std(axis=0).mean()
    if not spread >= _SMALLEST_SPREAD * wanted:
        raise ValueError(
            f"The generator has collapsed: over {what}, a pixel varies by "
            f"only {spread:.2g}, compared with {wanted:.2g} over the images. "
            f"{advice}"
        )
