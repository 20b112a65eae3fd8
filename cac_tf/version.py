# SPDX-License-Identifier: Apache-2.0
"""The version of the package; setup.py reads it from here."""

__version__ = "0.1.0"
