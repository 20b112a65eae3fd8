# SPDX-License-Identifier: Apache-2.0
"""The search for counterfactual images (Neal et al., 2018, section 3.2)."""

import keras
from keras import ops

from cac_tf.methods.generated_unknowns.gradients import values_and_gradient
from cac_tf.methods.generated_unknowns.gradients import with_frozen
from cac_tf.methods.generated_unknowns.image_networks import UnitChunks

DISTANCES = ("squared", "means")


def search_loss(logits, latents, start, distance_weight, distance):
    r"""What the search makes small, per image.

    \\(-\log p_{N+1} + w \, d(z, z_0)\\), where p is the softmax of the logits
    and a last one, 0, of the class "unknown".

    Args:
        logits: (B, N).
        latents, start: (B, L), z and z_0.
        distance_weight: w.
        distance: "squared", |z - z_0|^2 (the paper's), or "means", the squared
            difference of their mean values (the released code's).

    Returns:
        (B,) losses.

    Example:

    >>> import numpy as np
    >>> z = np.float32([[1, 0]])
    >>> for distance in DISTANCES:
    ...     loss = search_loss(np.zeros((1, 3), "float32"), z, -z, 1, distance)
    ...     print(round(float(loss[0]), 4))
    5.3863
    2.3863
    """
    of_unknown = ops.logsumexp(ops.pad(logits, ((0, 0), (0, 1))), axis=-1)
    if distance == "squared":
        apart = ops.sum(ops.square(latents - start), axis=-1)
    else:
        apart = ops.square(
            ops.mean(latents, axis=-1) - ops.mean(start, axis=-1)
        )
    return of_unknown + distance_weight * apart


class CounterfactualSearch(keras.Model):
    """Images like the given ones in which a classifier sees no known class.

    Each begins with the latents of a real image, takes steps against the
    gradient of `search_loss`, and returns to the unit spheres after each.

    The gradient is that of each image's own loss. (What the released code does
    by batch is not stated in words; there, the loss is multiplied in.)

    Args:
        encoder, generator: trained networks, see `image_networks`.
        preprocessing: `ImagePreprocessing` before the classifier, or None.
        classifier: Keras model from images to (B, N) logits.
        steps, speed: number of the steps, and the factor of the gradient.
        distance_weight, distance: see `search_loss`.
        times_loss: whether each step is multiplied by the loss, so that half
            the squared loss descends.
        in_training_mode: whether generator and classifier behave as in
            training: dropout, and statistics of the batch. Their running means
            and random states stay as they are.

    Call arguments:
        images: (B, H, W, C), 0...255.

    Returns:
        (B, H, W, C) images in [0, 1].
    """

    def __init__(
        self,
        encoder,
        generator,
        preprocessing,
        classifier,
        *,
        steps=100,
        speed=0.1,
        distance_weight=1.0,
        distance="squared",
        times_loss=False,
        in_training_mode=False,
    ):
        super().__init__(name="counterfactual_search", dtype="float32")
        if distance not in DISTANCES:
            raise ValueError(
                f"distance must be one of {', '.join(DISTANCES)}; got "
                f"{distance!r}."
            )
        self.encoder, self.generator = encoder, generator
        self.preprocessing, self.classifier = preprocessing, classifier
        self.unit = UnitChunks(dtype="float32", name="unit")
        self._steps, self._speed = steps, speed
        self._distance = (distance_weight, distance)
        self._times_loss, self._in_training = times_loss, in_training_mode

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    def call(self, images):
        latents, _ = self.search(self.start(images))
        # In training mode, a plain call would change its running means.
        return with_frozen(self.generator, latents, training=self._in_training)

    def start(self, images):
        """(B, L) latents of (B, H, W, C) images, 0...255."""
        return self.encoder(ops.cast(images, "float32") / 255.0, training=False)

    def search(self, start):
        """The latents after all steps.

        Args:
            start: (B, L) latents.

        Returns:
            (B, L) latents, and (B,) values of `search_loss` before the last
            step.
        """
        variables = [*self.generator.variables, *self.classifier.variables]
        # What training mode changes goes from step to step.
        changing = [v for v in variables if not v.trainable]
        fixed = [v for v in variables if v.trainable]

        def step(_, state):
            latents, _, values = state
            losses, gradient, after = values_and_gradient(
                lambda z: self.losses_at(z, start),
                latents,
                [*zip(changing, values, strict=True), *fixed],
            )
            if self._times_loss:
                gradient = gradient * ops.expand_dims(losses, -1)
            latents = self.unit(latents - self._speed * gradient)
            return latents, losses, after[: len(changing)]

        values = [ops.convert_to_tensor(v.value) for v in changing]
        state = (start, ops.zeros_like(start[:, 0]), values)
        latents, losses, _ = ops.fori_loop(0, self._steps, step, state)
        return latents, losses

    def losses_at(self, latents, start):
        """(B,) values of `search_loss` for latents."""
        images = self.generator(latents, training=self._in_training)
        if self.preprocessing is not None:
            images = self.preprocessing.normalise(images)
        logits = self.classifier(images, training=self._in_training)
        return search_loss(
            ops.cast(logits, "float32"), latents, start, *self._distance
        )
