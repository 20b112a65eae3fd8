# SPDX-License-Identifier: Apache-2.0
"""Modules that are imported when something of theirs is used.

So `--help`, which needs only names, loads neither Keras nor TensorFlow, and
`import cac_tf` no package that most programs never use.
"""

import importlib
import importlib.util
import sys
import types


def package(name, modules, otherwise=None):
    """Makes a package lazy; called in its `__init__.py`.

    Args:
        name: its `__name__`.
        modules: dict from the name of a module of the package to the list of
            the public names that it defines. The module itself is an
            attribute too, unless one of the names is the same.
        otherwise: called with any other name of an attribute; returns its
            value or raises AttributeError.

    Example:

    >>> import cac_tf.data
    >>> "class_split" in dir(cac_tf.data)
    True
    >>> cac_tf.data.class_split("mnist").known
    (0, 1, 2, 4, 5, 9)
    """
    made = sys.modules[name]
    # In the namespace itself: a package has no other state.
    made._modules = {
        **{module: None for module in modules if "." not in module},
        **{one: module for module, names in modules.items() for one in names},
    }
    made._otherwise = otherwise
    made.__all__ = sorted(one for names in modules.values() for one in names)
    made.__class__ = _LazyPackage


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
    made = _LazyModule(name)
    made.__dict__["_extra"] = extra
    return made


def require(package, extra):
    """Raises ImportError, with the command to install it, without a package.

    Example:

    >>> require("json", "report")
    >>> require("nonesuch", "report")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: The package nonesuch is needed for this: pip install \
'cac-tf[report]'
    """
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"The package {package} is needed for this: pip install "
            f"'cac-tf[{extra}]'",
            name=package,
        )


class _Module(types.ModuleType):
    def __reduce__(self):
        # By name, as cloudpickle does it with exact modules alone. Engines
        # like Beam, Ray and Spark send functions with their modules.
        return importlib.import_module, (self.__name__,)


class _LazyModule(_Module):
    def __getattr__(self, name):
        # What doctest asks of everything in a file.
        if name == "__wrapped__":
            raise AttributeError(name)
        if self.__dict__["_extra"] is not None:
            require(self.__name__.split(".")[0], self.__dict__["_extra"])
        return getattr(importlib.import_module(self.__name__), name)


class _LazyPackage(_Module):
    def __getattr__(self, name):
        modules = self.__dict__["_modules"]
        if name not in modules:
            otherwise = self.__dict__["_otherwise"]
            if otherwise is not None and not name.startswith("_"):
                return otherwise(name)
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r}"
            )
        if modules[name] is None:
            return importlib.import_module(f"{self.__name__}.{name}")
        module = importlib.import_module(f"{self.__name__}.{modules[name]}")
        value = getattr(module, name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name, value):
        # A module that is imported becomes an attribute of its package. It
        # must not hide a function of the same name.
        modules = self.__dict__["_modules"]
        is_own_module = getattr(value, "__name__", "") == (
            f"{self.__name__}.{name}"
        )
        if is_own_module and modules.get(name) is not None:
            return
        super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*super().__dir__(), *self.__dict__["_modules"]})
