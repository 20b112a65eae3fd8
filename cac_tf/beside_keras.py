# SPDX-License-Identifier: Apache-2.0
"""Keras knows our classes as soon as both it and this package are imported.

`import cac_tf` alone imports neither Keras nor our classes, so that the command
line starts at once. `keras.saving.load_model` must know the classes all the
same, so they are imported right after Keras.
"""

import importlib
import importlib.abc
import pkgutil
import sys

# The rooms with classes that Keras saves and loads.
_ROOMS = ("layers", "losses", "metrics", "models", "scores")
# Below, modules that those rooms import, and that import Keras themselves.
_BELOW = ("keras_private", "ops")


def import_classes():
    """Imports our classes now, if Keras is imported, else right after it."""
    if "keras" in sys.modules:
        _import_rooms()
    else:
        sys.meta_path.insert(0, _AfterTheFirst())


def _import_rooms():
    for room in _ROOMS:
        package = importlib.import_module(f"cac_tf.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")


class _AfterTheFirst(importlib.abc.MetaPathFinder):
    """After the first import of Keras or of a module of ours that needs it.

    If it is one of ours, it must be there as a whole before the others are
    imported: they may need what comes after its own `import keras`.
    """

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not _needs_keras(name):
            return None
        for finder in sys.meta_path:
            spec = finder is not self and finder.find_spec(name, path, target)
            if spec:
                break
        else:
            return None
        is_package = spec.submodule_search_locations is not None
        if name == "keras" or not is_package:  # Packages of ours are lazy.
            self._follow(spec.loader)
        return spec

    def _follow(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            if self not in sys.meta_path:
                execute(module)
                return
            sys.meta_path.remove(self)
            try:
                execute(module)
            except BaseException:
                sys.meta_path.insert(0, self)
                raise
            _import_rooms()

        loader.exec_module = exec_module


def _needs_keras(name):
    parts = name.split(".")
    is_of_rooms = len(parts) > 1 and parts[1] in _ROOMS + _BELOW
    return parts[0] == "cac_tf" and is_of_rooms and parts[-1] != "registry"
