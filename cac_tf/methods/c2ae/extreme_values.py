# SPDX-License-Identifier: Apache-2.0
"""The threshold of C2AE from the tails of its errors."""

import numpy as np

from cac_tf import lazy

stats = lazy.module("scipy.stats")

_FEWEST, _GRID = 5, 10_000
_TAIL_SHARE = 0.1


def check_enough(images):
    """Raises ValueError if so many validation images are too few for a tail."""
    if int(_TAIL_SHARE * images) < _FEWEST:
        raise ValueError(
            f"threshold=extreme_values needs {_FEWEST} errors in a tail of "
            f"{_TAIL_SHARE:.0%}, that is {round(_FEWEST / _TAIL_SHARE)} "
            f"validation images; there are {images}. Increase "
            "validation_fraction, or choose threshold=accepted_share."
        )


def errors_of(model, examples):
    """Errors of known images as their own class and as each other one.

    Args:
        model: `OpenSetClassifier` with the output `reconstruction_errors`.
        examples: pair of images and their (n,) labels, such as
            `dataset.validation`.

    Returns:
        (n,) match and (n * (K - 1),) non-match errors.
    """
    images, labels = examples
    errors = np.concatenate(
        [
            outputs["reconstruction_errors"]
            for outputs, *_ in model.iterate_outputs(
                images, names=["reconstruction_errors"]
            )
        ]
    )
    is_own = np.arange(errors.shape[1]) == np.asarray(labels)[:, None]
    return errors[is_own], errors[~is_own]


def extreme_value_threshold(
    match, non_match, unknown_share=0.5, tail_share=_TAIL_SHARE
):
    """The threshold with the smallest probability of a wrong decision.

    Generalized Pareto distributions describe the largest errors of images as
    their own class and the smallest of images as another class, which stand for
    those of unknown images. (The paper reads off a plot of mean excesses where
    a tail begins; here it is a share of the errors. Below the tail, shares are
    counted.)

    Args:
        match: (n,) errors of known images as their own class.
        non_match: (m,) errors as other classes.
        unknown_share: expected share of unknown inputs (p_u), in (0, 1).
        tail_share: share of the errors that form a tail, in (0, 1).

    Returns:
        The threshold, for `OpenSetClassifier.threshold`.

    Raises:
        ValueError: a share out of range, errors that are not finite, or fewer
            than five errors in a tail.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> match, others = rng.normal(1, 0.1, 500), rng.normal(2, 0.1, 500)
    >>> threshold = extreme_value_threshold(match, others)
    >>> bool(match.max() < threshold < others.min())
    True
    """
    for name, share in (
        ("unknown_share", unknown_share),
        ("tail_share", tail_share),
    ):
        if not 0.0 < share < 1.0:
            raise ValueError(f"{name} must be in (0, 1); got {share!r}.")
    of_match = _Tail(match, tail_share, "match")
    of_others = _Tail(-np.asarray(non_match), tail_share, "non_match")
    thresholds = np.linspace(
        min(np.min(match), np.min(non_match)),
        max(np.max(match), np.max(non_match)),
        _GRID,
    )
    wrong = (1.0 - unknown_share) * of_match.share_above(thresholds)
    wrong += unknown_share * of_others.share_above(-thresholds)
    # Midway, where several are equally good.
    best = np.flatnonzero(wrong <= wrong.min() + 1e-12)
    return float(thresholds[best[len(best) // 2]])


class _Tail:
    """The distribution of values, with a Pareto tail at the upper end."""

    def __init__(self, values, share, name):
        values = np.sort(np.asarray(values, "float64").reshape(-1))
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite.")
        count = int(share * len(values))
        if count < _FEWEST:
            raise ValueError(
                f"The tail of {len(values)} {name} errors contains only "
                f"{count}; at least {_FEWEST} are needed: provide more errors "
                "or a larger tail_share."
            )
        self._values, self._share = values, count / len(values)
        self._start = values[-count - 1]
        self._fit = stats.genpareto.fit(values[-count:] - self._start, floc=0.0)

    def share_above(self, at):
        """Probability of a value above each of `at`."""
        places = np.searchsorted(self._values, at, side="right")
        counted = 1.0 - places / len(self._values)
        in_tail = self._share * stats.genpareto.sf(
            np.maximum(at - self._start, 0.0), *self._fit
        )
        return np.where(at > self._start, in_tail, counted)
