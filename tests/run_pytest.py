# SPDX-License-Identifier: Apache-2.0
"""Runs pytest on the files it is given: the main of Bazel's test targets."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["--import-mode=importlib", *sys.argv[1:]]))
