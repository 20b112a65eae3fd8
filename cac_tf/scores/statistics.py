# SPDX-License-Identifier: Apache-2.0
"""Statistics of examples that arrive in batches.

Beyond the rounding of float64 sums, none depends on the batching of the
examples or on their order. Memory does not grow with their number.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil

from cac_tf import lazy

optimize = lazy.module("scipy.optimize")
special = lazy.module("scipy.special")

# The share of the free memory that a statistic may take.
_USABLE_MEMORY = 0.7
# Of a variance, relative to the square of the mean.
_ROUNDING = 1e-12


def check_memory(num_bytes: float, what: str, remedy: str) -> None:
    """Raises ValueError if there is not enough free memory.

    Args:
        num_bytes: number of bytes needed.
        what: what needs them; the subject of the message.
        remedy: a sentence that says what to do instead.
    """
    usable = _USABLE_MEMORY * psutil.virtual_memory().available
    if num_bytes > usable:
        raise ValueError(
            f"{what} needs {num_bytes / 2**30:.2f} GiB, but only "
            f"{usable / 2**30:.2f} GiB of memory are available. {remedy}"
        )


def rows_by_class(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The classes that are present, each with the indices of its rows.

    Args:
        labels: (n,) integers.

    Yields:
        Pairs of a label and an int array, ascending in both.

    Example:

    >>> for label, rows in rows_by_class(np.array([7, 2, 7])):
    ...     print(label, rows)
    2 [1]
    7 [0 2]
    """
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    yield from zip(present, np.split(order, starts)[1:], strict=True)


class ClassMoments:
    """Count, mean and variance of the vectors of each class.

    Args:
        num_classes: N.
        with_variances: whether variances are wanted, at twice the cost.
    """

    def __init__(self, num_classes: int, with_variances: bool = False) -> None:
        self.counts = np.zeros(num_classes, "int64")
        self._with_variances = with_variances
        # The first vectors set their width.
        self._sums = self._squares = np.zeros((num_classes, 1))

    def add(self, vectors: np.ndarray, labels: np.ndarray) -> None:
        """Adds (n, D) vectors with (n,) labels, in O(n D)."""
        if not len(labels):
            return
        if not self.counts.any():
            shape = (len(self.counts), vectors.shape[1])
            self._sums, self._squares = np.zeros(shape), np.zeros(shape)
        for label, rows in rows_by_class(labels):
            own = vectors[rows].astype("float64")
            self.counts[label] += len(own)
            self._sums[label] += own.sum(axis=0)
            if self._with_variances:
                self._squares[label] += np.square(own, out=own).sum(axis=0)

    @property
    def means(self) -> np.ndarray:
        """(N, D); 0 for a class without vectors."""
        return self._sums / np.maximum(self.counts, 1)[:, None]

    @property
    def variances(self) -> np.ndarray:
        """(N, D), not negative; 0 for a class without vectors."""
        squares = self._squares / np.maximum(self.counts, 1)[:, None]
        return np.maximum(squares - self.means**2, 0.0)

    @property
    def has_spread(self) -> np.ndarray:
        """(N, D) bool: whether vectors differ by more than rounding."""
        return self.variances > _ROUNDING * self.means**2


def moderated_variances(
    variances: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    r"""Variances of K groups, each drawn towards what they have in common.

    With s_k^2 the unbiased variance of n_k values, of d_k = n_k - 1 degrees of
    freedom, this is \\((d_0 s_0^2 + d_k s_k^2) / (d_0 + d_k)\\): with few
    values it is near s_0^2, with many it is s_k^2. s_0^2 and d_0 are those of a
    scaled inverse chi-squared distribution of the true variances, by the
    moments of log s_k^2. Where they differ by no more than by chance, d_0 is
    infinite and all become s_0^2.

    Paper: Smyth, *Linear Models and Empirical Bayes Methods for Assessing
    Differential Expression in Microarray Experiments*, 2004, section 6.2.

    Args:
        variances: (K,) positive, means of squares (divided by n_k).
        counts: (K,) n_k, at least 2.

    Example:

    >>> variances = np.array([1.0, 2.0, 4.0])
    >>> moderated_variances(variances, np.array([9, 9, 9])).round(2)
    array([1.83, 2.3 , 3.24])
    >>> moderated_variances(variances, np.array([900, 900, 900])).round(2)
    array([1.  , 2.  , 3.99])
    """
    freedom = counts - 1.0
    unbiased = variances * (counts / freedom)
    logs = np.log(unbiased) - _mean_log_chi_squared(freedom)
    if len(logs) < 2:
        return unbiased
    # What of their spread is not due to chance.
    spread = logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean()
    if spread <= 0:
        return np.full(len(logs), np.exp(logs.mean()))
    prior = 2.0 * _inverse_trigamma(spread)
    common = np.exp(logs.mean() + _mean_log_chi_squared(prior))
    return (prior * common + freedom * unbiased) / (prior + freedom)


def _mean_log_chi_squared(freedom):
    """E log(X / d) of a chi-squared X with d degrees of freedom."""
    return special.digamma(freedom / 2) - np.log(freedom / 2)


def _inverse_trigamma(value):
    """The x > 0 whose trigamma function is `value`; it falls."""
    # 1/x + 1/(2x^2) < trigamma(x) < 1/x + 1/x^2
    low, high = 0.5 / value, 1.0 / value + value**-0.5
    return optimize.brentq(
        lambda x: special.polygamma(1, x) - value, low, high, xtol=1e-12 * high
    )


class SecondMoment:
    """Number, sum and sum of outer products of vectors: O(D^2) memory."""

    def __init__(self) -> None:
        self.count = 0
        # Arrays, once the width is known.
        self.sum: Any = None
        self.products: Any = None

    def add(self, vectors: np.ndarray) -> None:
        """Adds (n, D) vectors."""
        width = vectors.shape[1]
        if self.sum is None:
            # For the moment itself and for what is computed from it.
            check_memory(
                4 * 8 * width**2,
                f"A second moment of {width:,} features",
                "Choose a narrower features_layer, or a score that does not "
                "use a covariance.",
            )
            self.sum = np.zeros(width)
            self.products = np.zeros((width, width))
        vectors = vectors.astype("float64")
        self.count += len(vectors)
        self.sum += vectors.sum(axis=0)
        self.products += vectors.T @ vectors

    def about(self, origin: np.ndarray) -> np.ndarray:
        """(D, D) mean of `(x - origin) (x - origin)^T`."""
        mean = self.sum / self.count
        crossed = np.outer(origin, mean)
        return (
            self.products / self.count
            - crossed
            - crossed.T
            + np.outer(origin, origin)
        )


class Sample:
    """Of each class the examples with the smallest keys, equally many.

    Keys look random and depend on the inputs alone, so this is a random sample
    that does not depend on the order or the batching of the examples.

    Args:
        size: largest number of examples, divided evenly among the classes.
        num_classes: N.
    """

    def __init__(self, size: int, num_classes: int = 1) -> None:
        self._size, self._quota = size, size // num_classes
        # Of keys, labels and rows.
        self._parts: list[tuple[np.ndarray, ...]] = []
        self._held = 0
        self.seen = 0

    def add(
        self, keys: np.ndarray, labels: np.ndarray, *rows: np.ndarray
    ) -> None:
        """Adds (n,) keys and labels with arrays of n rows each."""
        self._parts.append((keys, labels, *rows))
        self._held += len(keys)
        self.seen += len(keys)
        if self._held > 2 * self._size:
            self._prune()

    def _prune(self):
        arrays = [
            parts[0] if len(parts) == 1 else np.concatenate(parts)
            for parts in zip(*self._parts, strict=True)
        ]
        keys, labels = arrays[:2]
        order = np.lexsort((keys, labels))
        # The place of each example among those of its class.
        ordered = labels[order]
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        chosen = order[place < self._quota]
        self._parts = [tuple(array[chosen] for array in arrays)]
        self._held = len(chosen)

    def arrays(self) -> Sequence[np.ndarray]:
        """The labels and rows of the chosen examples, copied.

        They are in the order of their labels and, in a class, of their keys.
        """
        if not self._parts:
            return ()
        self._prune()
        return self._parts[0][1:]
