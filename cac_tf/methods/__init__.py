# SPDX-License-Identifier: Apache-2.0
"""How models are trained and scored: one file per method.

A file in this folder that defines `METHOD` is a method; nothing else needs to
know of it.
"""

import functools
import importlib
import pkgutil

from cac_tf.methods.method import Method
from cac_tf.methods.presets import check_views
from cac_tf.methods.presets import preset
from cac_tf.methods.recipe import Recipe


@functools.cache
def _methods():
    found = {}
    for module in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module.name}")
        method = getattr(module, "METHOD", None)
        if method is not None:
            found[method.name] = method
    return found


def names():
    """Names of the methods that there are.

    Example:

    >>> names()
    ('cac', 'cross_entropy')
    """
    return tuple(_methods())


def get(name):
    """The method of a name.

    Raises:
        ValueError: there is none of this name.

    Example:

    >>> get("cross_entropy").scores
    ('max_softmax', 'max_logit', 'openmax')
    """
    if name not in _methods():
        raise ValueError(
            f"There is no method {name!r}; there are: {', '.join(names())}."
        )
    return _methods()[name]
