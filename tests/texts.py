# SPDX-License-Identifier: Apache-2.0
"""Short texts of a few classes, made by a seed."""

import numpy as np

SUBJECTS = ("card", "transfer", "cash", "pin")
_WORDS = {
    "card": "card lost stolen plastic chip wallet",
    "transfer": "transfer money send account friend abroad",
    "cash": "cash machine withdraw notes coins atm",
    "pin": "pin code forgot digits unlock secret",
}
WORDS = sorted({word for own in _WORDS.values() for word in own.split()})


def sentences(count: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Texts of the classes in turn, and (n,) int64 positions in `SUBJECTS`."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(SUBJECTS)
    words = [_WORDS[SUBJECTS[label]].split() for label in labels]
    return [f"My {' '.join(rng.choice(own, 3))}!" for own in words], labels
