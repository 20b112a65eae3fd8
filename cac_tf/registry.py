# SPDX-License-Identifier: Apache-2.0
"""Scores, losses, methods, networks and data sources, found by their names."""

import difflib
import functools
import importlib
import importlib.metadata
import pkgutil

# Modules that other packages name under this entry point are imported before
# anything is looked up, so that they can register what is theirs.
PLUGINS = "cac_tf.plugins"


class Registry:
    """The registered things of one kind: ours, and those of other packages.

    A module of our own folder registers what it defines, under its own name:
    so the names are known before it is imported, and it is imported when it is
    looked up. Modules that begin with "_", and those that are said not to,
    register nothing. Every module that an installed package names under the
    entry point `cac_tf.plugins` is imported before either.

    Args:
        kind: the word for one of them in messages, e.g. "score".
        package: name of the folder with the modules.
        but: names of modules of the folder that register nothing.
        named_by_files: whether what our own modules register has their names;
            otherwise they are all imported for their names.

    Example:

    >>> shapes = Registry("shape", "cac_tf.registry")
    >>> shapes.register("a circle", name="circle")
    'a circle'
    >>> shapes.names()
    ('circle',)
    >>> shapes.get("cirkle")
    Traceback (most recent call last):
    ValueError: Unknown shape 'cirkle'; did you mean 'circle'? Available: \
circle.
    """

    def __init__(self, kind, package, but=(), named_by_files=True):
        self._kind, self._package, self._but = kind, package, but
        self._named_by_files = named_by_files
        self._entries = {}

    def register(self, thing, name=None):
        """Registers `thing` by its own `name` or `NAME` unless one is given.

        Returns:
            `thing`, so this also works as a decorator.

        Raises:
            ValueError: the name is taken, or no name is given.
        """
        name = name or getattr(thing, "NAME", None) or thing.name
        file = f"{self._package}.{name}"
        is_of_file = getattr(thing, "__module__", None) == file
        if self._named_by_files and name in self._files and not is_of_file:
            self._import([name])  # Ours comes first.
        earlier = self._entries.get(name)
        if earlier is not None and not _is_same(earlier, thing):
            raise ValueError(
                f"The {self._kind} {name!r} is already registered: {earlier!r}."
            )
        self._entries[name] = thing
        return thing

    def registered(self):
        """Those that are registered so far; others may not be imported yet."""
        return tuple(self._entries.values())

    def names(self):
        """The registered names, sorted."""
        load_plugins()
        if self._named_by_files:
            return tuple(sorted({*self._entries, *self._files}))
        self._import(self._files)
        return tuple(sorted(self._entries))

    def check(self, name):
        """Raises ValueError unless a thing has this name."""
        known = self.names()
        if name not in known:
            raise ValueError(
                f"Unknown {self._kind} {name!r}{did_you_mean(name, known)} "
                f"Available: {', '.join(known)}."
            )

    def get(self, name):
        """The registered thing with this name.

        Raises:
            ValueError: no thing has this name.
        """
        self.check(name)
        if name not in self._entries:
            self._import([name])
        return self._entries[name]

    def values(self):
        """All of them, in the order of their names."""
        return tuple(self.get(name) for name in self.names())

    @functools.cached_property
    def _files(self):
        """Names of the modules of our folder that register something."""
        package = importlib.import_module(self._package)
        return tuple(
            module.name
            for module in pkgutil.iter_modules(getattr(package, "__path__", ()))
            if not module.name.startswith("_") and module.name not in self._but
        )

    def _import(self, names):
        for name in names:
            importlib.import_module(f"{self._package}.{name}")


def did_you_mean(name, names):
    """How a sentence ends that says that there is no such name.

    Example:

    >>> did_you_mean("mnits", ["mnist", "svhn"]), did_you_mean("x", ["mnist"])
    ("; did you mean 'mnist'?", '.')
    """
    close = difflib.get_close_matches(str(name), list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else "."


@functools.cache
def load_plugins():
    """Imports the modules that installed packages name, once."""
    for entry in importlib.metadata.entry_points(group=PLUGINS):
        entry.load()


def _is_same(one, other):
    """Whether it is the same definition; a module may be imported twice."""
    return one is other or (
        getattr(one, "__qualname__", one) == getattr(other, "__qualname__", "")
        and getattr(one, "__module__", None)
        == getattr(other, "__module__", None)
    )
