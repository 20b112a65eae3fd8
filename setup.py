# SPDX-License-Identifier: Apache-2.0
"""Packages, version and README; all other metadata is in pyproject.toml.

`cac_tf/ops` and `cac_tf/train` are links to `ops/` and `train/`: installed,
they are folders. Nothing else than `cac_tf` gets into site-packages. The fused
operations go along as sources: `python -m cac_tf.ops.build` compiles them
against the TensorFlow that is installed.

`make wheels` builds the other kind of wheel: with `CAC_TF_WHEEL_WITH_OPS=1` the
libraries in `ops/` go along. Such a wheel is for one platform, for any Python,
and names the TensorFlow in its build tag.
"""

import os
import pathlib
import re
import sys

import setuptools
from setuptools.command import bdist_wheel
from setuptools.command import sdist

ROOT = pathlib.Path(__file__).parent
LINKS = {"cac_tf/ops": "../ops", "cac_tf/train": "../train"}
VERSION = re.search(
    r'__version__ = "(.+)"', (ROOT / "cac_tf" / "version.py").read_text()
).group(1)

WITH_OPS = os.environ.get("CAC_TF_WHEEL_WITH_OPS") == "1"


def readme():
    """The README without what leads into the repository.

    Those who read it elsewhere, on the page of a package, have no files beside
    it: links become their text, and a picture goes with its caption.
    """
    text = (ROOT / "README.md").read_text("utf-8")
    picture = r"!\[[^]]*\]\((?!https?:)[^)]*\)\n\n\*[^*]+\*\n\n"
    link = r"\[([^]]+)\]\((?!https?:)[^)]*\)"
    return re.sub(link, r"\1", re.sub(picture, "", text))


class SourceDistribution(sdist.sdist):
    """One with links where the repository has them, not the files again."""

    def make_release_tree(self, base_dir, files):
        files = {os.path.normpath(file) for file in files}
        behind = tuple(f"{link}/" for link in LINKS)
        super().make_release_tree(
            base_dir, sorted(f for f in files if not f.startswith(behind))
        )
        for link, target in LINKS.items():
            pathlib.Path(base_dir, link).symlink_to(target)


class BinaryDistribution(setuptools.Distribution):
    """One whose wheel is not for every platform."""

    def has_ext_modules(self):
        return True


class BinaryWheel(bdist_wheel.bdist_wheel):
    """Its libraries are loaded by TensorFlow and JAX, not by Python."""

    def get_tag(self):
        *_, platform = super().get_tag()
        return "py3", "none", platform


def build_tag():
    """The TensorFlow that the libraries were built for, as they say it."""
    library = ROOT / "ops" / "anchored_cac_tensorflow.so"
    if not library.exists():
        sys.exit(f"There is no {library}: make ops")
    text = rb"fused ops for TensorFlow ([\w.]+),"
    release = re.search(text, library.read_bytes()).group(1)
    return f"1tf{release.decode()}"


binary = (
    {
        "distclass": BinaryDistribution,
        "options": {"bdist_wheel": {"build_number": build_tag()}},
    }
    if WITH_OPS
    else {}
)
commands = {"sdist": SourceDistribution}
if WITH_OPS:
    commands["bdist_wheel"] = BinaryWheel
setuptools.setup(
    version=VERSION,
    long_description=readme(),
    long_description_content_type="text/markdown",
    cmdclass=commands,
    packages=setuptools.find_packages(include=["cac_tf", "cac_tf.*"]),
    # Said like this, an editable install is a line in a .pth file, which
    # editors and type checkers read; otherwise it is a program.
    package_dir={"": "."},
    # Otherwise all that MANIFEST.in names: it is for the source distribution.
    include_package_data=False,
    package_data={
        "cac_tf": [
            "py.typed",
            "*.pyi",
            "*/*.pyi",
            "*/*/*.pyi",
            "data/*.json",
            "data/*.tsv",
            "demo/*.css",
            "demo/*.js",
            "export/*.md",
            "reporting/*.html",
            "reporting/*.css",
            "reporting/*.js",
            "reporting/*.json",
        ],
        "cac_tf.ops": [
            *("core/*", "tensorflow/*", "xla/*"),
            *(["*.so"] if WITH_OPS else []),
        ],
    },
    data_files=[
        (
            "share/bash-completion/completions",
            [
                str(path.relative_to(ROOT))
                for path in sorted((ROOT / "completions").iterdir())
            ],
        )
    ],
    **binary,
)
