# SPDX-License-Identifier: Apache-2.0
"""Writes what type checkers and editors read of the lazy packages.

    python tools/stubs.py

A lazy package imports its names when they are used, which tools that do not
run code cannot see. An `__init__.pyi` beside its `__init__.py` tells them.
"""

import importlib
import pathlib
import pkgutil

import cac_tf
from cac_tf import scores

ROOT = pathlib.Path(__file__).parent.parent
_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by tools/stubs.py.
"""


def stubs():
    """Dict from the path of each stub to its text."""
    names = [
        "cac_tf",
        *(
            module.name
            for module in pkgutil.walk_packages(
                [str(ROOT / "cac_tf")], "cac_tf."
            )
            if module.ispkg
        ),
    ]
    found = {}
    for name in names:
        package = importlib.import_module(name)
        modules = getattr(package, "_modules", None)
        if modules is not None:
            path = pathlib.Path(package.__file__).with_suffix(".pyi")
            found[path] = _HEAD + "".join(sorted(_lines(name, modules)))
    return found


def _lines(package, modules):
    for name, module in modules.items():
        source = package if module is None else f"{package}.{module}"
        yield f"from {source} import {name} as {name}\n"
    if package == "cac_tf":
        yield "from cac_tf.version import __version__ as __version__\n"
    if package == scores.__name__:
        for name in scores.names():
            own = scores.find(name)
            if own.__module__.startswith("cac_tf."):
                class_name = own.__name__
                yield (
                    f"from {own.__module__} import {class_name} as "
                    f"{class_name}\n"
                )


def main():
    """Brings all stubs up to date."""
    for path, text in stubs().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"updated {path.relative_to(ROOT)}")


if __name__ == "__main__":
    assert cac_tf.__file__.startswith(str(ROOT))
    main()
