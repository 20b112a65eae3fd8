# SPDX-License-Identifier: Apache-2.0
"""The package in every place it can be imported from."""

import ast
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sysconfig

import pytest

import cac_tf
from tests.conftest import ROOT
from tests.packaging.conftest import python

IMPORT = (
    "import cac_tf, cac_tf.train.cac_train, cac_tf.data, cac_tf.ops, sys; "
    "cac_tf.data.class_split('mnist'); "
    "import cac_tf.reporting.benchmark_table as table; "
    "table.published('neal'); "
    "import cac_tf.export.model_folder as folder; "
    "folder.readme_template(); "
    "import cac_tf.demo.page as page; "
    "page.file_text('canvas.js'); page.file_text('page.css'); "
    "print(cac_tf.__file__); print(cac_tf.train.__file__)"
)


def test_only_cac_tf_gets_into_site_packages(installed):
    names = {path.name for path in installed.iterdir()}
    names = {name for name in names if not name.endswith(".dist-info")}
    assert names == {"bin", "cac_tf", "share"}
    assert {path.name for path in (installed / "bin").iterdir()} == {
        "cac-train",
        "cac-evaluate",
        "cac-benchmark",
        "cac-export",
        "cac-predict",
        "cac-import-weights",
        "cac-report",
        "cac-demo",
    }
    assert (installed / "cac_tf" / "train" / "cac_train.py").exists()
    assert (installed / "cac_tf" / "ops" / "core" / "anchored_cac.cc").exists()
    assert not list(installed.rglob("*.so"))
    assert not list(installed.rglob("*_test.py"))


def test_plain_install(installed, tmp_path):
    dependencies = sysconfig.get_paths()["purelib"]
    code = f"import sys; sys.path[:0] = [{str(installed)!r}]; {IMPORT}"
    assert dependencies not in str(installed)
    files = python("-c", code, cwd=tmp_path)
    for file in files:
        assert pathlib.Path(file).is_relative_to(installed)


def test_repository_root_hides_an_installed_package(installed):
    code = f"import sys; sys.path.append({str(installed)!r}); {IMPORT}"
    files = python("-c", code, cwd=ROOT)
    assert files == [
        str(ROOT / "cac_tf" / "__init__.py"),
        str(ROOT / "cac_tf" / "train" / "__init__.py"),
    ]


def test_repository_root_with_nothing_installed():
    # -I -S: no environment, no site-packages but the dependencies' folder.
    dependencies = sysconfig.get_paths()["purelib"]
    code = (
        "import sys; sys.path[:0] = "
        f"[{str(ROOT)!r}, {dependencies!r}]; {IMPORT}"
    )
    files = python("-I", "-S", "-c", code, cwd="/")
    assert files[1] == str(ROOT / "cac_tf" / "train" / "__init__.py")


def test_editable_install(tmp_path):
    """`make` installs the checkout this way; from any folder."""
    files = python("-c", IMPORT, cwd=tmp_path)
    assert files == [
        str(ROOT / "cac_tf" / "__init__.py"),
        str(ROOT / "cac_tf" / "train" / "__init__.py"),
    ]


def test_the_packages_are_what_there_is():
    """`ops` and `train` are in the package, and what lies beside it is not."""
    names = {
        module.name
        for module in pkgutil.walk_packages(cac_tf.__path__, "cac_tf.")
    }
    assert {"cac_tf.ops.loader", "cac_tf.train.cac_train"} < names
    for name in ("tests", "setup", "cac_tf", "benchmarks"):
        assert f"cac_tf.{name}" not in names
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"cac_tf.{name}")


ROOMS = [
    # Lower rooms first; a room may import itself and those of lines before.
    {"annotations", "version"},
    {"arguments", "cores", "file_lock", "lazy"},
    {
        "atomic_files",
        "hyperparameters",
        "keras_private",
        "labels",
        "ops",
        "options",
        "registry",
    },
    {"decision"},
    {"layers"},
    {"losses", "scores"},
    {"metrics"},
    {"data", "models", "training"},
    {"export", "methods", "reporting", "sklearn"},
    {"batch", "experiments"},
    {"demo"},
    {"train"},
]
LEVELS = {room: i for i, rooms in enumerate(ROOMS) for room in rooms}
BESIDE = ("ops", "train")
# What a function imports when it is called, as `model.export` does.
UPWARDS_WHEN_CALLED = {("cac_tf/models/open_set_classifier.py", "export")}


def room_of(relative):
    parts = relative.with_suffix("").parts
    return parts[0] if parts[0] in BESIDE else parts[1]


def sources():
    """Source files of the package, relative, but for its `__init__.py`."""
    files = [
        file.relative_to(ROOT)
        for folder in ("cac_tf", *BESIDE)
        for file in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 100
    return [file for file in files if room_of(file) != "__init__"]


def imported_rooms(tree, is_called=False):
    """Pairs: a room that is imported, and whether by a function's call."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            is_function = isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            )
            yield from imported_rooms(node, is_called or is_function)
            continue
        for name in names:
            if name == "cac_tf" or name.startswith("cac_tf."):
                # `import cac_tf` would be all rooms: there is none of "".
                yield (name + ".").split(".")[1], is_called


def test_lower_rooms_never_import_higher_ones():
    upwards = set()
    for file in sources():
        room = room_of(file)
        for other, is_called in imported_rooms(
            ast.parse((ROOT / file).read_text())
        ):
            if other == room or LEVELS[other] < LEVELS[room]:
                continue
            assert is_called, f"{file} imports cac_tf.{other}"
            upwards.add((str(file), other))
    assert upwards == UPWARDS_WHEN_CALLED


def test_every_room_has_its_floor():
    assert {room_of(file) for file in sources()} == set(LEVELS)


def test_the_decision_knows_nothing_but_labels():
    found = {
        other
        for file in sources()
        if room_of(file) == "decision"
        for other, _ in imported_rooms(ast.parse((ROOT / file).read_text()))
    }
    assert found - {"decision"} == {"annotations", "labels", "lazy"}


def texts_in(tree):
    """Texts of a program, without docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.value


def test_the_library_speaks_of_arguments_not_of_flags():
    """What is for the command line comes from `train/`."""
    named = {
        text
        for file in sources()
        if room_of(file) not in ("train", "ops")
        for text in texts_in(ast.parse((ROOT / file).read_text()))
        if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", text)
    }
    # Of `git status`.
    assert named == {"--porcelain", "--untracked-files=no"}


@pytest.mark.parametrize(
    "code, rooms",
    [
        ("import cac_tf", [("", False)]),
        ("import os, cac_tf.data.load", [("data", False)]),
        ("from cac_tf import labels, ops", [("labels", False), ("ops", False)]),
        ("def f():\n  from cac_tf.export import x", [("export", True)]),
        ("try:\n  import cac_tf.ops\nexcept OSError: pass", [("ops", False)]),
    ],
)
def test_imports_are_found(code, rooms):
    assert list(imported_rooms(ast.parse(code))) == rooms


def test_every_source_has_a_licence_and_no_utils():
    for file in ROOT.rglob("*.py"):
        relative = file.relative_to(ROOT)
        if relative.parts[0] in (".venv", "build", "runs"):
            continue
        text = file.read_text()
        assert not text or "SPDX-License-Identifier: Apache-2.0" in text, file
        assert "utils" not in file.name


def test_every_source_is_a_bazel_target():
    """Each .py file is named, or globbed, in the BUILD file of its folder."""
    tracked = subprocess.run(
        [
            *("git", "ls-files", "--cached", "--others"),
            *("--exclude-standard", "*.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.split():
        path = ROOT / name
        folder = path.parent
        if folder.name in BESIDE and folder.parent == ROOT:
            folder, path = ROOT / "cac_tf", ROOT / "cac_tf" / name
        while not (folder / "BUILD").exists():
            folder = folder.parent
        inside = path.relative_to(folder)
        build = (folder / "BUILD").read_text()
        if str(inside) in ("setup.py",):
            continue
        patterns = {
            str(inside),
            str(inside.parent / "*.py") if len(inside.parts) > 1 else "*.py",
        }
        if inside.name.endswith("_test.py"):
            patterns |= {str(inside.parent / "*_test.py")}
        assert any(f'"{p}"' in build for p in patterns), name
