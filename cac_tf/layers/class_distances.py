# SPDX-License-Identifier: Apache-2.0
"""Distances to class centers that are weights of a network."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.arguments import whole_number
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.layers.anchored_distance import checked_magnitude
from cac_tf.layers.anchored_distance import dense_distances


@keras.saving.register_keras_serializable(package="CacTf")
class ClassDistances(keras.layers.Layer):
    """Negative Euclidean distances to K class centers, a (K, D) weight.

    They are negative so that, as with logits, the largest value indicates the
    class: argmax and softmax work as usual, and the cross-entropy of these
    values is the tuplet loss (equation 2). The CAC losses accept them with
    `from_distances=True`.

    The centers start at the anchors, `magnitude` times the unit vectors. If
    there are fewer coordinates than classes, they start in fixed random
    directions, at that length.

    The layer computes in float32 even under a mixed-precision policy.

    Args:
        num_classes: number K of classes, each with one center, at least 2.
        magnitude: initial length of the centers, > 0.
        learnt: whether the centers are trained.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        inputs: (B, D), logits or any other vectors.

    Returns:
        (B, K) values <= 0, float32.

    Raises:
        ValueError: fewer than two classes, a magnitude that is not a number in
            1e-18...1e18, or inputs that are not (B, D).

    Example:

    >>> import numpy as np, cac_tf
    >>> layer = cac_tf.layers.ClassDistances(num_classes=2, magnitude=3)
    >>> np.round(np.asarray(layer(np.float32([[3, 4], [0, 3]]))), 4)
    array([[-4.    , -3.1623],
           [-4.2426, -0.    ]], dtype=float32)
    """

    def __init__(
        self,
        num_classes: int,
        magnitude: float = MAGNITUDE,
        *,
        learnt: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        # (A single class leaves nothing to distinguish.)
        self.num_classes = whole_number("num_classes", num_classes, least=2)
        self.magnitude = checked_magnitude(magnitude)
        self.learnt = bool(learnt)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "ClassDistances needs inputs of shape (batch, width); got "
                f"{tuple(input_shape)}."
            )
        start = starting_centers(
            self.num_classes, input_shape[-1], self.magnitude
        )
        self.centers = self.add_weight(
            name="centers",
            shape=start.shape,
            initializer=lambda shape, dtype: ops.convert_to_tensor(
                start, dtype
            ),
            trainable=self.learnt,
            dtype="float32",
            autocast=False,
        )
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return -dense_distances(inputs, ops.convert_to_tensor(self.centers))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "magnitude": self.magnitude,
            "learnt": self.learnt,
        }


def starting_centers(
    num_classes: int, width: int, magnitude: float = MAGNITUDE
) -> np.ndarray:
    """(K, D) float32 centers: anchors, or random directions where D < K.

    Example:

    >>> starting_centers(2, 3, 10.0)
    array([[10.,  0.,  0.],
           [ 0., 10.,  0.]], dtype=float32)
    """
    if width >= num_classes:
        return magnitude * np.eye(num_classes, width, dtype="float32")
    shape = (num_classes, width)
    directions = np.random.default_rng(0).standard_normal(shape)
    lengths = np.linalg.norm(directions, axis=-1, keepdims=True)
    return (magnitude * directions / lengths).astype("float32")
