# SPDX-License-Identifier: Apache-2.0
"""Reconstructions of an image under the condition of each class (C2AE)."""

from typing import Any
from typing import Self

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor


def label_conditions(num_classes: int) -> Tensor:
    """The condition vector of each class: 1 at the class, -1 elsewhere.

    The label condition vector of Oza and Patel (CVPR 2019).

    Returns:
        (K, K) float32, a row for each class.

    Example:

    >>> import numpy as np
    >>> np.asarray(label_conditions(2))
    array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    return 2.0 * ops.eye(num_classes, dtype="float32") - 1.0


@keras.saving.register_keras_serializable(package="CacTf")
class ClassConditionedReconstruction(keras.layers.Layer):
    r"""Decodes latents once under the condition of each class.

    "C2AE: Class Conditioned Auto-Encoder for Open-Set Recognition" (Oza and
    Patel, CVPR 2019), open-set training: two linear layers make
    \\(\gamma_j\\) and \\(\beta_j\\) of the condition vector of class j, and the
    decoder gets \\(\gamma_j \circ z + \beta_j\\) (FiLM, Perez et al., AAAI
    2018).

    All K reconstructions of a batch are computed at once, so memory grows with
    the batch size times K.

    Args:
        decoder: Keras model from (B, D) latents to (B, H, W, C) images.
        num_classes: K.
        seed: seed of the initialization.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        images: (B, H, W, C), on the scale of the decoder's images.
        latents: (B, D).

    Returns:
        Dict: `reconstruction_errors`, (B, K) float32 >= 0, the mean absolute
        difference between an image and its reconstruction as each class; and
        `reconstruction`, (B, H, W, C), the one with the smallest error.

    Example:

    >>> import numpy as np, keras
    >>> decoder = keras.Sequential([keras.Input([4]),
    ...                             keras.layers.Reshape((2, 2, 1))])
    >>> layer = ClassConditionedReconstruction(decoder, num_classes=2)
    >>> outputs = layer(np.zeros((3, 2, 2, 1)), np.ones((3, 4)))
    >>> tuple(outputs["reconstruction_errors"].shape)
    (3, 2)
    """

    def __init__(
        self,
        decoder: keras.Layer,
        num_classes: int,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        if num_classes < 2:
            raise ValueError(
                f"num_classes must be at least 2; got {num_classes}."
            )
        self.decoder = decoder
        self.num_classes = int(num_classes)
        self.seed = seed

    def build(self, images_shape: Shape, latents_shape: Shape) -> None:
        width = latents_shape[-1]
        for index, name in enumerate(("scale", "shift")):
            seed = None if self.seed is None else self.seed + index
            kernel = self.add_weight(
                shape=(self.num_classes, width),
                # PyTorch's of a linear layer.
                initializer=keras.initializers.VarianceScaling(
                    1 / 3, "fan_in", "uniform", seed=seed
                ),
                name=f"{name}_kernel",
            )
            bias = self.add_weight(
                shape=(width,), initializer="zeros", name=f"{name}_bias"
            )
            setattr(self, f"{name}_weights", (kernel, bias))
        if not self.decoder.built:
            self.decoder.build((None, width))
        self.built = True

    def modulations(self) -> tuple[Tensor, Tensor]:
        """The scales gamma and shifts beta of all classes, (K, D) each."""
        conditions = label_conditions(self.num_classes)
        scale, shift = (
            ops.matmul(conditions, kernel) + bias
            for kernel, bias in (self.scale_weights, self.shift_weights)
        )
        return scale, shift

    def as_classes(
        self, latents: Tensor, labels: Tensor, training: bool = False
    ) -> Tensor:
        """Each input decoded as one class.

        Args:
            latents: (B, D).
            labels: (B,) class indices, the conditions.
            training: whether the decoder is in training mode.

        Returns:
            (B, H, W, C) images.
        """
        scale, shift = (
            ops.take(one, ops.cast(labels, "int32"), axis=0)
            for one in self.modulations()
        )
        return self.decoder(scale * latents + shift, training=training)

    def call(
        self, images: Tensor, latents: Tensor, training: bool = False
    ) -> dict[str, Tensor]:
        scale, shift = self.modulations()
        conditioned = ops.expand_dims(latents, 1) * scale + shift
        decoded = self.decoder(
            ops.reshape(conditioned, (-1, latents.shape[-1])),
            training=training,
        )
        decoded = ops.cast(decoded, "float32")
        decoded = ops.reshape(
            decoded, (-1, self.num_classes, *decoded.shape[1:])
        )
        apart = ops.abs(decoded - ops.expand_dims(images, 1))
        errors = ops.mean(apart, axis=(2, 3, 4))
        best = ops.one_hot(ops.argmin(errors, axis=-1), self.num_classes)
        return {
            "reconstruction_errors": errors,
            "reconstruction": ops.sum(
                decoded * ops.reshape(best, (-1, self.num_classes, 1, 1, 1)),
                axis=1,
            ),
        }

    def compute_output_shape(
        self, images_shape: Shape, latents_shape: Shape
    ) -> dict[str, Shape]:
        return {
            "reconstruction_errors": (images_shape[0], self.num_classes),
            "reconstruction": tuple(images_shape),
        }

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "decoder": keras.saving.serialize_keras_object(self.decoder),
            "num_classes": self.num_classes,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        config = dict(config)
        config["decoder"] = keras.saving.deserialize_keras_object(
            config["decoder"]
        )
        return cls(**config)
