# SPDX-License-Identifier: Apache-2.0
"""Packages and version; all other metadata is in pyproject.toml.

`ops/` and `train/` of the repository are installed as `cac_tf.ops` and
`cac_tf.train`, and nothing else than `cac_tf` gets into site-packages. The
fused operations go along as sources: `python -m cac_tf.ops.build` compiles
them against the TensorFlow that is installed.
"""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+)"', (ROOT / "cac_tf" / "version.py").read_text()
).group(1)

setuptools.setup(
    version=VERSION,
    packages=[
        *setuptools.find_packages(include=["cac_tf", "cac_tf.*"]),
        "cac_tf.ops",
        "cac_tf.train",
    ],
    package_dir={"cac_tf.ops": "ops", "cac_tf.train": "train"},
    package_data={
        "cac_tf": [
            "data/*.json",
            "data/*.tsv",
            "export/*.md",
            "reporting/*.html",
            "reporting/*.js",
            "reporting/*.json",
        ],
        "cac_tf.ops": ["core/*", "tensorflow/*", "xla/*"],
    },
)
