# SPDX-License-Identifier: Apache-2.0
"""Rules that turn a classifier's outputs into an unknown score.

A file in this folder that registers a `Score` adds a score, and so does another
package that registers one (`scores.register`); no other file has to change. Its
class is an attribute of this package: `scores.Energy(temperature=2)`.
"""

from cac_tf import lazy
from cac_tf.scores.registry import find
from cac_tf.scores.registry import names


def _class(name):
    if name[0].isupper():
        for known in names():
            if find(known).__name__ == name:
                return find(known)
    raise AttributeError(f"cac_tf.scores has no attribute {name!r}")


lazy.package(
    __name__,
    {
        "fitting": ["Fitting"],
        "registry": ["check", "common_names", "find", "names", "register"],
        "score": [
            "Context",
            "KnownBatch",
            "LastLayer",
            "Score",
            "get",
            "keys_of",
        ],
    },
    otherwise=_class,
)
