# SPDX-License-Identifier: Apache-2.0
"""What share of new inputs a threshold accepts, and how far that is known."""

import typing

from cac_tf import lazy

stats = lazy.module("scipy.stats")

# The probability that an interval holds the share.
_CONFIDENCE = 0.9


class AcceptedShare(typing.NamedTuple):
    """How many of its calibration examples a threshold accepts.

    If the threshold lies above k of n exchangeable scores, the share of new
    inputs that it accepts is at least a Beta(k, n + 1 - k) variable and at most
    a Beta(k + 1, n - k) one, because it lies somewhere between two scores.
    `interval` runs from the 5 % quantile of the first to the 95 % quantile of
    the second; this is the interval of Clopper and Pearson (*The Use of
    Confidence or Fiducial Limits Illustrated in the Case of the Binomial*,
    1934).

    Example:

    >>> share = AcceptedShare(144, 151)
    >>> low, high = share.interval
    >>> f"{low:.3f} {high:.3f}", share.in_words()
    ('0.915 0.978', '91-98 %')
    """

    accepted: int
    examples: int

    @property
    def rate(self) -> float:
        """The share of these examples that is accepted."""
        return self.accepted / self.examples

    @property
    def interval(self) -> tuple[float, float]:
        """A 90 % interval for the share of new inputs like them."""
        found = stats.binomtest(self.accepted, self.examples)
        low, high = found.proportion_ci(_CONFIDENCE, method="exact")
        return float(low), float(high)

    def in_words(self) -> str:
        """The interval in percent."""
        digits = 1 if self.examples >= 1000 else 0
        low, high = (f"{100 * one:.{digits}f}" for one in self.interval)
        return f"{low}-{high} %"
