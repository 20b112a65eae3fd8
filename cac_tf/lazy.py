# SPDX-License-Identifier: Apache-2.0
"""Other packages, imported when something of theirs is used.

So `--help`, which needs only names, loads neither Keras nor TensorFlow. (Our
own packages are lazy by `lazy_loader`. Its `load` would import SciPy for
`scipy.stats`, and leave a Keras that is not loaded in `sys.modules`.)
"""

import importlib
import importlib.util
import types


def module(name, extra=None):
    """Stands for a module of another package, which may be slow to import.

    Args:
        name: of the module.
        extra: the extra of cac_tf that installs the package, if it is an
            optional one; then `require` says so where it is missing.

    Example:

    >>> fractions = module("fractions")
    >>> fractions.Fraction(1, 2) + 1
    Fraction(3, 2)
    """
    made = types.ModuleType(name)

    def attribute(name):
        # What doctest asks of everything in a file.
        if name == "__wrapped__":
            raise AttributeError(name)
        if extra is not None:
            require(made.__name__.split(".")[0], extra)
        return getattr(importlib.import_module(made.__name__), name)

    made.__getattr__ = attribute
    return made


def require(package, extra):
    """Raises ImportError, with the command to install it, without a package.

    Example:

    >>> require("json", "report")
    >>> require("nonesuch", "report")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: This needs the package nonesuch: pip install \
'cac-tf[report]'
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"This needs the package {package}: pip install 'cac-tf[{extra}]'",
            name=package,
        )
