# SPDX-License-Identifier: Apache-2.0
"""What is in the distributions, and what is not."""

import pathlib
import re
import subprocess
import tarfile
import zipfile

import pytest

from cac_tf.version import __version__
from tests.conftest import ROOT


def git_files(*options):
    result = subprocess.run(
        ["git", "ls-files", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        pytest.skip("not a git checkout")
    return {name for name in result.stdout.split() if (ROOT / name).exists()}


def files_of_sdist(path):
    with tarfile.open(path) as archive:
        names = [entry.name for entry in archive if not entry.isdir()]
    return {name.split("/", 1)[1] for name in names}


def test_the_source_distribution_is_the_repository(distributions):
    names = files_of_sdist(distributions.sdist)
    tracked = git_files()
    assert len(tracked) > 300
    assert tracked <= names
    others = names - git_files("--cached", "--others", "--exclude-standard")
    made = {name for name in others if not name.startswith("cac_tf.egg-info/")}
    assert made == {"PKG-INFO", "setup.cfg"}


def test_nothing_that_was_built_is_in_the_source_distribution(distributions):
    names = files_of_sdist(distributions.sdist)
    assert {"ops/core/anchored_cac.cc", "tests/conftest.py"} <= names
    assert not [n for n in names if n.endswith((".so", ".pyc"))]
    assert not [n for n in names if n.startswith("docs/generated")]


def test_the_wheel_holds_the_package_and_its_data(distributions):
    assert distributions.wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(distributions.wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith("cac_tf/")}
    kinds = {pathlib.PurePath(name).suffix for name in package}
    sources = {".cc", ".cu", ".cuh", ".h", ".inc"}
    assert kinds == {
        *sources,
        *(
            ".css",
            ".html",
            ".js",
            ".json",
            ".md",
            ".py",
            ".pyi",
            ".tsv",
            ".typed",
        ),
    }
    for folder, there in (
        ("cac_tf", "cac_tf"),
        ("ops", "cac_tf/ops"),
        ("train", "cac_tf/train"),
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in kinds:
                relative = path.relative_to(ROOT / folder)
                assert f"{there}/{relative}" in package
    assert all(
        name.startswith("cac_tf/ops/")
        for name in package
        if pathlib.PurePath(name).suffix in sources
    )
    others = {name for name in names - package if ".dist-info/" not in name}
    data = f"cac_tf-{__version__}.data/data/share/bash-completion/completions"
    assert others == {
        f"{data}/{path.name}" for path in (ROOT / "completions").iterdir()
    }


def test_no_link_of_the_readme_leads_to_a_file(distributions):
    """Where a package is shown, there are no files beside its README."""
    with zipfile.ZipFile(distributions.wheel) as archive:
        (path,) = [n for n in archive.namelist() if n.endswith("/METADATA")]
        metadata = archive.read(path).decode()
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert "# cac_tf: classifiers" in metadata
    assert not re.search(r"\]\((?!https?:)", metadata)
