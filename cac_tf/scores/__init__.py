# SPDX-License-Identifier: Apache-2.0
"""Rules that turn a classifier's outputs into an unknown score.

A file in this folder that defines a `Score` with a `NAME` is a score; nothing
else needs to know of it. Its class is an attribute of this package:
`scores.Energy(temperature=2.0)`.
"""

import importlib
import pkgutil

from cac_tf.scores.score import Known
from cac_tf.scores.score import KnownBatch
from cac_tf.scores.score import LastLayer
from cac_tf.scores.score import Score
from cac_tf.scores.score import keys_of


def _found():
    """Every score in this folder: class by name."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, Score)
                and value.NAME
                and value.__module__ == module.__name__
            ):
                found[value.NAME] = value
    return found


_SCORES = _found()
globals().update({rule.__name__: rule for rule in _SCORES.values()})


def names():
    """Names that `get` takes.

    Example:

    >>> for name in names():
    ...     print(name)
    class_z_score
    deep_nearest_neighbours
    energy
    gamma
    mahalanobis
    max_logit
    max_softmax
    min_distance
    nnguide
    openmax
    vim
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
    if not isinstance(score, str) or score not in _SCORES:
        raise ValueError(
            f"score must be one of {', '.join(_SCORES)}, or a Score; got "
            f"{score!r}."
        )
    return _SCORES[score]()
