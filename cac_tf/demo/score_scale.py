# SPDX-License-Identifier: Apache-2.0
"""Where unknown scores stand on a line that a person can look at."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


class ScoreScale:
    """Places of scores between 0 and 1, evenly by their rank.

    Scores of known inputs may be a million times smaller than those of unknown
    ones, and some are negative. By rank, both have room.

    Args:
        scores: (n,) scores of inputs that are known or unknown; may be empty.
        thresholds: a number or an array; also on the scale.

    Example:

    >>> scale = ScoreScale([1e-6, 1e-3, 4.0], 0.02)
    >>> float(scale.place(0.02)), float(scale.place(99.0))
    (0.6666666666666666, 1.0)
    >>> round(scale.score(2 / 3), 6)
    0.02
    """

    def __init__(self, scores: ArrayLike, thresholds: ArrayLike) -> None:
        limits = np.ravel(thresholds).astype("float64")
        values = np.unique(np.r_[np.asarray(scores, "float64"), limits])
        if len(values) < 3:
            # Without other inputs: as far as they are from 0, to both sides.
            span = max(np.ptp(limits), np.abs(limits).max()) or 1.0
            values = np.r_[values[0] - span, values, values[-1] + span]
        self._values = values
        self._places = np.linspace(0.0, 1.0, len(values))

    def place(self, scores: Any) -> Any:
        """Places of scores, in [0, 1]; those beyond the ends are there."""
        return np.interp(scores, self._values, self._places)

    def score(self, place: float) -> float:
        """The score at a place in [0, 1]."""
        return float(np.interp(place, self._places, self._values))
