# SPDX-License-Identifier: Apache-2.0
"""What trainings of reconstructions have in common."""

import contextlib
import types

from keras import ops

from cac_tf.training.classifier_training import StopsAtNonFiniteLoss
from cac_tf.training.classifier_training import part_of_whole


class ImageTraining(StopsAtNonFiniteLoss):
    """A training on images as the classifier sees them, with a loss of its own.

    A subclass has `call(images, training)`, which gives what the loss needs
    besides images and labels, and `losses_of(images, labels, outputs,
    training)`, a list of pairs: (B,) losses and their (B,) weights. Their
    weighted means are added.

    Args:
        parts: `models.ImageParts` of the classifier.
        learns: name of the layer of the classifier's network that learns.
        **kwargs: passed to `keras.Model`.
    """

    def __init__(self, parts, learns, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        # In a namespace, what does not learn is no layer of this model.
        self._own = types.SimpleNamespace(parts=parts)
        self.learns = parts.network.get_layer(learns)

    @property
    def parts(self):
        """The layers of the classifier."""
        return self._own.parts

    @contextlib.contextmanager
    def learning(self):
        """Within it, the layer that learns is trainable; otherwise not."""
        self.learns.trainable = True
        try:
            yield
        finally:
            self.learns.trainable = False

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    def losses_of(self, images, labels, outputs, training):
        raise NotImplementedError

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The sum of the weighted means of `losses_of`.

        Args:
            x: (B, H, W, C) images, 0...255.
            y: (B,) labels.
            y_pred: what a call gives.
            sample_weight: not used.
            training: whether it is a training step.
        """
        pairs = []
        for values, weights in self.losses_of(x, y, y_pred, training):
            total = ops.sum(weights)
            mean = ops.divide_no_nan(ops.sum(values * weights), total)
            pairs.append((mean, total))
        return part_of_whole(pairs)


def reconstructed(classifier, images):
    """A classifier's reconstructions of images, a row by its name.

    Args:
        classifier: Keras model with an output `reconstruction`, [0, 1].
        images: (n, H, W, C), 0...255; few.
    """
    outputs = classifier.predict_on_batch(images)
    return {"reconstructed": 255.0 * outputs["reconstruction"]}


def reconstruction_losses(images, reconstructions, kind="absolute"):
    """How far reconstructions are from images.

    Args:
        images, reconstructions: (B, H, W, C).
        kind: "absolute" or "squared".

    Returns:
        (B,) float32, means over the pixels of each image.

    Example:

    >>> import numpy as np
    >>> one = np.full((1, 2, 2, 1), 0.5, "float32")
    >>> [float(reconstruction_losses(one, 0 * one, kind)[0])
    ...  for kind in ("absolute", "squared")]
    [0.5, 0.25]
    """
    apart = ops.cast(reconstructions, "float32") - ops.cast(images, "float32")
    apart = ops.abs(apart) if kind == "absolute" else ops.square(apart)
    return ops.mean(apart, axis=tuple(range(1, len(apart.shape))))
