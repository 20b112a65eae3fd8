# SPDX-License-Identifier: Apache-2.0
"""Packages and version; all other metadata is in pyproject.toml.

`ops/` and `train/` of the repository are installed as `cac_tf.ops` and
`cac_tf.train`, and nothing else than `cac_tf` gets into site-packages. The
fused operations go along as sources: `python -m cac_tf.ops.build` compiles
them against the TensorFlow that is installed.

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

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+)"', (ROOT / "cac_tf" / "version.py").read_text()
).group(1)

WITH_OPS = os.environ.get("CAC_TF_WHEEL_WITH_OPS") == "1"


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
        "cmdclass": {"bdist_wheel": BinaryWheel},
        "options": {"bdist_wheel": {"build_number": build_tag()}},
    }
    if WITH_OPS
    else {}
)
setuptools.setup(
    version=VERSION,
    packages=[
        *setuptools.find_packages(include=["cac_tf", "cac_tf.*"]),
        "cac_tf.ops",
        "cac_tf.train",
    ],
    package_dir={"cac_tf.ops": "ops", "cac_tf.train": "train"},
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
