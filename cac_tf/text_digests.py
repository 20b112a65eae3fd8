# SPDX-License-Identifier: Apache-2.0
"""Numbers that stand for texts."""

import hashlib
from collections.abc import Iterable

import numpy as np

_BYTES = 16


def text_digests(texts: Iterable[str | bytes]) -> np.ndarray:
    """(n, 16) uint8 digests, the same for a text and for its UTF-8 bytes.

    Example:

    >>> one, other = text_digests(["a"]), text_digests([b"a", "b"])
    >>> bool((one == other[:1]).all()), bool((one == other[1:]).any())
    (True, False)
    """
    digests = [
        hashlib.blake2b(
            text if isinstance(text, bytes) else text.encode(),
            digest_size=_BYTES,
        ).digest()
        for text in texts
    ]
    return np.frombuffer(b"".join(digests), "uint8").reshape(-1, _BYTES)
