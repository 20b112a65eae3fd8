# SPDX-License-Identifier: Apache-2.0
"""The search for counterfactual images (Neal et al., 2018, section 3.2)."""

import keras
from keras import ops

from cac_tf.methods.generated_unknowns.gradients import values_and_gradient
from cac_tf.methods.generated_unknowns.gradients import with_frozen
from cac_tf.methods.generated_unknowns.image_networks import CHUNK
from cac_tf.methods.generated_unknowns.image_networks import UnitChunks

# The released code projects latents to spheres of a quarter of their values.
_QUARTERS = 4


def search_loss(
    logits, latents, start, distance_weight, distance, step="image"
):
    r"""What the search makes small, per image.

    \\(-\log p_{N+1} + w \, d(z, z_0)\\), where p is the softmax of the logits
    and a last one, 0, of the class "unknown".

    Args:
        logits: (B, N).
        latents, start: (B, L), z and z_0.
        distance_weight: w.
        distance: "squared", |z - z_0|^2 (the paper's), or "means", the squared
            difference of their mean values (the released code's).
        step: "image", or "batch": then those means are taken over all values
            of the batch, as in the released code.

    Returns:
        (B,) losses.

    Example:

    >>> import numpy as np
    >>> z = np.float32([[1, 0]])
    >>> for distance in ("squared", "means"):
    ...     loss = search_loss(np.zeros((1, 3), "float32"), z, -z, 1, distance)
    ...     print(round(float(loss[0]), 4))
    5.3863
    2.3863
    """
    of_unknown = ops.logsumexp(ops.pad(logits, ((0, 0), (0, 1))), axis=-1)
    if distance == "squared":
        apart = ops.sum(ops.square(latents - start), axis=-1)
    else:
        axis = None if step == "batch" else -1
        apart = ops.square(
            ops.mean(latents, axis=axis) - ops.mean(start, axis=axis)
        )
    return of_unknown + distance_weight * apart


class CounterfactualSearch(keras.Model):
    """Images like the given ones in which a classifier sees no known class.

    Each begins with the latents of a real image, takes steps against the
    gradient of `search_loss`, and returns to the unit spheres after each.

    With `step="image"`, each image follows the gradient of its own loss. With
    `step="batch"`, which is what the released code does, a step is the gradient
    of the batch's mean loss, multiplied by this loss. So each image moves by a
    share of it, and an image's result depends on the others of its batch. And
    the spheres are then those of four quarters of the latents, though encoder
    and generator have one for each `image_networks.CHUNK` values.

    Args:
        encoder, generator: trained networks, see `image_networks`.
        normalize: layer from images in [0, 1] to what the classifier takes,
            or None.
        classifier: Keras model, to (B, N) logits.
        steps, speed: number of the steps, and the factor of the gradient.
        distance_weight, distance: see `search_loss`.
        step: "image" or "batch".
        in_training_mode: whether the networks behave as in training: dropout,
            and statistics of the batch. Their running means and random states
            stay as they are.

    Call arguments:
        images: (B, H, W, C), 0...255.

    Returns:
        (B, H, W, C) images in [0, 1].
    """

    def __init__(
        self,
        encoder,
        generator,
        normalize,
        classifier,
        *,
        steps=100,
        speed=0.1,
        distance_weight=1.0,
        distance="squared",
        step="image",
        in_training_mode=False,
    ):
        super().__init__(name="counterfactual_search", dtype="float32")
        self.encoder, self.generator = encoder, generator
        self.normalize, self.classifier = normalize, classifier
        width = encoder.output_shape[-1]
        self.unit = UnitChunks(
            width // _QUARTERS if step == "batch" else CHUNK,
            dtype="float32",
            name="unit",
        )
        self._steps, self._speed = steps, speed
        self._loss = (distance_weight, distance, step)
        self._by_batch = step == "batch"
        self._in_training = in_training_mode

    def build(self, input_shape):
        """The networks are built when they are made."""
        self.built = True

    def call(self, images):
        latents, _ = self.search(self.start(images))
        # In training mode, a plain call would change its running means.
        return with_frozen(self.generator, latents, training=self._in_training)

    def start(self, images):
        """(B, L) latents of (B, H, W, C) images, 0...255."""
        return with_frozen(
            self.encoder,
            ops.cast(images, "float32") / 255.0,
            training=self._in_training,
        )

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
            if self._by_batch:
                # The gradient is that of the sum.
                count = ops.cast(ops.shape(losses)[0], "float32")
                gradient = gradient * ops.mean(losses) / count
            latents = self.unit(latents - self._speed * gradient)
            return latents, losses, after[: len(changing)]

        values = [ops.convert_to_tensor(v.value) for v in changing]
        state = (start, ops.zeros_like(start[:, 0]), values)
        latents, losses, _ = ops.fori_loop(0, self._steps, step, state)
        return latents, losses

    def losses_at(self, latents, start):
        """(B,) values of `search_loss` for latents."""
        images = self.generator(latents, training=self._in_training)
        if self.normalize is not None:
            images = self.normalize(images)
        logits = self.classifier(images, training=self._in_training)
        return search_loss(
            ops.cast(logits, "float32"), latents, start, *self._loss
        )
