# SPDX-License-Identifier: Apache-2.0
"""Which images G-OpenMax generates, and which it keeps as unknown."""

import keras
import numpy as np
from keras import ops

from cac_tf.methods.generated_unknowns.gradients import with_frozen


def interpolated(one, other, shares):
    """Points between latent vectors.

    Args:
        one, other: (n, L) latents.
        shares: (n,), that of `other`, in [0, 1].

    Returns:
        (n, L) float32.

    Example:

    >>> interpolated([[0, 4]], [[1, 0]], [0.25])
    array([[0.25, 3.  ]], dtype=float32)
    """
    one, other = np.float64(one), np.float64(other)
    return np.float32(one + np.float64(shares)[:, None] * (other - one))


def random_class_vectors(count, num_classes, rng):
    """Vectors of normally distributed numbers whose sum is 1.

    That is N(0, 1) for each, given the sum. (Numbers divided by their sum
    would not be normal, and some of them huge.)

    Args:
        count: n.
        num_classes: N.
        rng: `numpy.random.Generator`.

    Returns:
        (n, N) float32.

    Example:

    >>> random_class_vectors(2, 3, np.random.default_rng(0)).sum(axis=1)
    array([1., 1.], dtype=float32)
    """
    numbers = rng.standard_normal((count, num_classes))
    excess = numbers.sum(axis=1, keepdims=True) - 1.0
    return np.float32(numbers - excess / num_classes)


def shows_no_class(logits, largest_probability):
    """Whether every class has a smaller probability, by the softmax.

    Args:
        logits: (n, N) of the classifier.
        largest_probability: in (0, 1].

    Returns:
        (n,) bool.

    Example:

    >>> shows_no_class([[1, 1, 1], [9, 1, 1]], largest_probability=0.5)
    array([ True, False])
    """
    logits = np.float64(logits)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    # Logits that are NaN count as such: what is kept is checked for it.
    return ~(1.0 / powers.sum(axis=1) >= largest_probability)


def shows_another_class(logits, vectors):
    """Whether the classifier sees another class than that of the vector.

    Args:
        logits: (n, N) of the classifier.
        vectors: (n, N) class vectors; the largest entry is the class.

    Returns:
        (n,) bool.

    Example:

    >>> shows_another_class([[3, 1], [3, 1]], [[0.7, 0.3], [-1, 2]])
    array([False,  True])
    """
    return np.argmax(logits, axis=1) != np.argmax(vectors, axis=1)


class ClassifiedImages(keras.Model):
    """Images that a generator makes, and what a classifier says of them.

    Args:
        generator: Keras model from its inputs to (B, H, W, C) images in [0, 1].
        normalize: layer from images in [0, 1] to what the classifier takes,
            or None.
        classifier: Keras model, to (B, N) logits.
        in_training_mode: whether both behave as in training: dropout, and
            statistics of the batch. They stay as they are.

    Call arguments:
        inputs: of the generator.

    Returns:
        (B, H, W, C) images in [0, 1], and (B, N) logits.
    """

    def __init__(
        self, generator, normalize, classifier, in_training_mode=False
    ):
        super().__init__(name="classified_images", dtype="float32")
        self.generator, self.classifier = generator, classifier
        self.normalize = normalize
        self._in_training = in_training_mode

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    def call(self, inputs):
        # In training mode, a plain call would change running means.
        images = with_frozen(self.generator, inputs, training=self._in_training)
        seen = images
        if self.normalize is not None:
            seen = self.normalize(images)
        logits = with_frozen(self.classifier, seen, training=self._in_training)
        return images, ops.cast(logits, "float32")
