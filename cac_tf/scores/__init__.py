# SPDX-License-Identifier: Apache-2.0
"""Rules that turn a classifier's outputs into an unknown score."""

from cac_tf.scores.gamma import Gamma
from cac_tf.scores.max_logit import MaxLogit
from cac_tf.scores.max_softmax import MaxSoftmax
from cac_tf.scores.min_distance import MinDistance
from cac_tf.scores.openmax import OpenMax
from cac_tf.scores.score import Score

_SCORES = {
    "gamma": Gamma,
    "min_distance": MinDistance,
    "max_logit": MaxLogit,
    "max_softmax": MaxSoftmax,
    "openmax": OpenMax,
}


def names():
    """Names that `get` takes.

    Example:

    >>> names()
    ('gamma', 'min_distance', 'max_logit', 'max_softmax', 'openmax')
    """
    return tuple(_SCORES)


def get(score):
    """A `Score` from its name, or the object itself.

    Raises:
        ValueError: neither a name of `names` nor a `Score`.

    Example:

    >>> get("max_logit").name
    'max_logit'
    """
    if isinstance(score, Score):
        return score
    if score not in _SCORES:
        raise ValueError(
            f"score must be one of {', '.join(_SCORES)}, or a Score; got "
            f"{score!r}."
        )
    return _SCORES[score]()
