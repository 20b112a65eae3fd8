# SPDX-License-Identifier: Apache-2.0
"""Test martingales that bet on numbers which are uniform while nothing changes.

A bet of the shape (c, r) multiplies its stake by r if a number lies below c,
else by (1 - r c) / (1 - c): of a uniform number, by 1 on average. It wins if
numbers below c are about r times as frequent as they were.
"""

import itertools

import numpy as np

_SHAPES = [
    (c, r)
    for c, r in itertools.product(
        [0.5**i for i in range(1, 8)], [0.5, 1.25, 2.0]
    )
    if r * c < 1.0
]
_BELOW, _IF_BELOW = np.transpose(_SHAPES)
_ELSE = (1.0 - _IF_BELOW * _BELOW) / (1.0 - _BELOW)
# More changes no decision; so many numbers more cannot make it overflow.
_LARGEST, _AT_ONCE = 1e100, 256
# Of the factors of so many numbers at once.
_ELEMENTS = 1 << 20


def _has_risen(stakes):
    return _IF_BELOW[stakes.argmax(axis=-1)] > 1.0


class Bets:
    r"""Several test martingales, each of which bets in many ways at once.

    Of its first capital of 1, a martingale puts a share on each of S shapes
    after each number, because nobody knows when a change comes:

    \(M_n = R_n + \sum_{t=1}^n (R_{t-1} - R_t) \frac{1}{S} \sum_{(c, r)}
    \prod_{i=t}^n f_{c,r}(u_i), \quad R_n = \frac{1}{\log_2(n + 2)}\)

    where f is what multiplies a stake. The weights sum to 1, so the mean of
    \(M_n\) is 1 for independent uniform \(u_i\), and by Ville's inequality
    \(P(\exists n: M_n \ge 1 / a) \le a\).

    Args:
        tests: number of martingales.

    Example:

    >>> bets = Bets(1)
    >>> values, has_risen = bets.bet(slice(None), np.full((100, 1), 0.01))
    >>> bool(values[-1, 0] > 1e6), bool(has_risen[-1, 0])
    (True, True)
    """

    def __init__(self, tests: int) -> None:
        self.numbers = np.zeros(tests, int)  # how many each has seen
        self.reserve = np.ones(tests)  # capital that no bet has yet
        self.stakes = np.zeros((tests, len(_SHAPES)))

    def bet(
        self, which: slice, uniform: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Takes numbers for some of the martingales.

        Args:
            which: of the martingales, T of them.
            uniform: (B, T) numbers in [0, 1], one row after the other.

        Returns:
            (B, T) values of the martingales after each row, and bool: whether
            the largest stake is on more numbers near 0.
        """
        tests = uniform.shape[1]
        size = _ELEMENTS // (tests * len(_SHAPES))
        size = max(min(size, _AT_ONCE), 1)
        parts = [
            self._bet(which, uniform[start : start + size])
            for start in range(0, len(uniform), size)
        ]
        none = np.empty((0, tests)), np.empty((0, tests), bool)
        values, has_risen = zip(none, *parts, strict=True)
        return np.concatenate(values), np.concatenate(has_risen)

    def _bet(self, which, uniform):
        stakes = self.stakes[which]
        numbers = self.numbers[which] + np.arange(len(uniform) + 1)[:, None]
        # (B + 1, T): the first row is the present one.
        reserve = np.log2(self.numbers[which] + 2) / np.log2(numbers + 2)
        reserve *= self.reserve[which]
        begun = -np.diff(reserve, axis=0)[:, :, None] / len(_SHAPES)
        is_below = uniform[:, :, None] < _BELOW
        # (B, T, S): factors, which become the stakes after each row.
        after = np.where(is_below, _IF_BELOW, _ELSE)
        for more, row in zip(begun, after, strict=True):
            row *= stakes + more
            stakes = row
        self.stakes[which] = np.minimum(stakes, _LARGEST)
        self.numbers[which] = numbers[-1]
        self.reserve[which] = reserve[-1]
        return reserve[1:] + after.sum(axis=2), _has_risen(after)

    def values(self) -> np.ndarray:
        """The martingales' values now."""
        return self.reserve + self.stakes.sum(axis=1)

    def has_risen(self) -> np.ndarray:
        """Whether the largest stake of each is on more numbers near 0."""
        return _has_risen(self.stakes)

    def state(self) -> dict:
        """What `of_state` takes; JSON can hold it."""
        return {name: array.tolist() for name, array in vars(self).items()}

    @classmethod
    def of_state(cls, tests: int, state: dict) -> "Bets":
        """The bets of a state.

        Raises:
            ValueError, TypeError or KeyError: it is none, or that of another
                number of tests.
        """
        bets = cls(tests)
        for name, array in vars(bets).items():
            found = np.array(state[name], array.dtype)
            if found.shape != array.shape or not (
                np.isfinite(found).all() and (found >= 0).all()
            ):
                raise ValueError(f"{name} of the bets is damaged")
            array[...] = found
        return bets

    @classmethod
    def mean(cls, several: "list[Bets]") -> "Bets":
        """Each martingale's mean over several, which has seen all numbers."""
        bets = cls(len(several[0].numbers))
        bets.numbers[:] = np.sum([one.numbers for one in several], axis=0)
        bets.reserve[:] = np.mean([one.reserve for one in several], axis=0)
        bets.stakes[:] = np.mean([one.stakes for one in several], axis=0)
        return bets
