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
        "cac-monitor",
        "cac-import-weights",
        "cac-report",
        "cac-demo",
        "cac-enroll",
    }
    assert (installed / "cac_tf" / "train" / "cac_train.py").exists()
    assert (installed / "cac_tf" / "ops" / "core" / "anchored_cac.cc").exists()
    assert not list(installed.rglob("*.so"))
    assert not list(installed.rglob("*_test.py"))


def test_every_place_that_it_is_imported_from(installed, tmp_path):
    dependencies = sysconfig.get_paths()["purelib"]
    assert dependencies not in str(installed)
    here = [
        str(ROOT / "cac_tf" / "__init__.py"),
        str(ROOT / "cac_tf" / "train" / "__init__.py"),
    ]
    first = f"import sys; sys.path[:0] = [{str(installed)!r}]; {IMPORT}"
    for file in python("-c", first, cwd=tmp_path):
        assert pathlib.Path(file).is_relative_to(installed)
    # The repository's root hides an installed package.
    last = f"import sys; sys.path.append({str(installed)!r}); {IMPORT}"
    assert python("-c", last, cwd=ROOT) == here
    # -I -S: no environment, no site-packages but the dependencies' folder.
    paths = [str(ROOT), dependencies]
    alone = f"import sys; sys.path[:0] = {paths!r}; {IMPORT}"
    assert python("-I", "-S", "-c", alone, cwd="/")[1] == here[1]
    # `make` installs the checkout as editable: from any folder.
    assert python("-c", IMPORT, cwd=tmp_path) == here


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


def sources():
    """Source files of the library, without the binaries and fused operations.

    Relative to the repository.
    """
    files = [f.relative_to(ROOT) for f in (ROOT / "cac_tf").rglob("*.py")]
    assert len(files) > 100
    return files


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
        for text in texts_in(ast.parse((ROOT / file).read_text()))
        if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", text)
    }
    # Of `git status`.
    assert named == {"--porcelain", "--untracked-files=no"}


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
        if folder.name in ("ops", "train") and folder.parent == ROOT:
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
