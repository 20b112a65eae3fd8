# SPDX-License-Identifier: Apache-2.0
"""How fast this machine trains a network."""

import time

import keras
import numpy as np

from cac_tf.losses import CACLoss
from cac_tf.models import NETWORKS
from cac_tf.models import OpenSetClassifier

_NUM_CLASSES = 6


def images_per_second(network, image_size, batch_size, precision, steps=4):
    """Times a few training steps on made images, the first left out.

    Args:
        network: key of `models.NETWORKS`.
        image_size: height and width.
        batch_size: images a step.
        precision: Keras dtype policy.
        steps: how many steps are timed; the median counts.

    Returns:
        Images per second.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        backbone = NETWORKS[network](
            _NUM_CLASSES, (image_size, image_size, 3), weight_decay=1e-5
        )
    finally:
        keras.config.set_dtype_policy(before)
    names = [str(i) for i in range(_NUM_CLASSES)]
    model = OpenSetClassifier(backbone, names)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), CACLoss())
    shape = (batch_size, image_size, image_size, 3)
    images = np.random.default_rng(0).random(shape, "float32")
    labels = np.arange(batch_size) % _NUM_CLASSES
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        model.train_on_batch(images, labels)
        seconds.append(time.perf_counter() - started)
    return batch_size / float(np.median(seconds[1:]))
