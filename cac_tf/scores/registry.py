# SPDX-License-Identifier: Apache-2.0
"""Scores by name."""

from cac_tf.registry import Registry

_SCORES = Registry(
    "score",
    "cac_tf.scores",
    but=(
        "enrolled",
        "fitting",
        "nearest_examples",
        "registry",
        "score",
        "statistics",
    ),
)
register = _SCORES.register
names, check, find = _SCORES.names, _SCORES.check, _SCORES.get

# The outputs that a classifier has by itself.
_COMMON = {"logits", "features", "distances", "gamma"}


def common_names() -> tuple[str, ...]:
    """Names of the scores that read no other outputs than every classifier's.

    The others belong to methods whose networks return what they read.

    Example:

    >>> "vim" in common_names(), "min_reconstruction_error" in common_names()
    (True, False)
    """
    return tuple(name for name in names() if set(find(name).READS) <= _COMMON)
