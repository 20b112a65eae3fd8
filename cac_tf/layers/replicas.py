# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model under tf.distribute."""

from typing import Any

import keras


def replica_context() -> Any:
    """TensorFlow's context of this replica, or None without other replicas."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    several = context is not None and context.num_replicas_in_sync > 1
    return context if several else None
