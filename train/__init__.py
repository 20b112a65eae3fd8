# SPDX-License-Identifier: Apache-2.0
"""Command-line binaries: flags in, library calls out.

Imported as `cac_tf.train`.
"""
