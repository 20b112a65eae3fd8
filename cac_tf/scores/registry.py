# SPDX-License-Identifier: Apache-2.0
"""Scores by name."""

from cac_tf.registry import Registry

_SCORES = Registry("score", "cac_tf.scores")
register = _SCORES.register
names, check, find = _SCORES.names, _SCORES.check, _SCORES.get
