# SPDX-License-Identifier: Apache-2.0
"""Distances from logits to anchors and other centers (paper, section 3.1)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.arguments import as_float
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.layers.precision import full_precision

# Up to this many center coordinates (K * D), all differences are formed
# directly: exact, and at this size as fast as a matrix product.
_DIRECT_COORDINATES = 4096
# With more, the distances to this many nearest centers are formed directly.
_RECOMPUTED_NEAREST = 4


def checked_magnitude(magnitude: float) -> float:
    """A length of anchors as a float; ValueError if it cannot be one."""
    number = as_float(magnitude)
    # Squares of it must be float32 numbers.
    if not 1e-18 <= number <= 1e18:
        raise ValueError(
            f"magnitude must be a number in 1e-18...1e18; got {magnitude!r}."
        )
    return number


def _split_dominant(weights):
    """A mask of the row's largest weights, these alone, and all others."""
    size = ops.abs(weights)
    is_top = ops.equal(size, ops.max(size, axis=-1, keepdims=True, initial=0.0))
    top = ops.where(is_top, weights, 0.0)
    rest = ops.where(is_top, 0.0, weights)
    return is_top, top, rest


def _sum_without_each(weights):
    """For every k, the sum of `weights[:, j]` over j != k, shape (B, N).

    Close to a center one weight exceeds the others by orders of magnitude, so
    "total minus own" would lose the others. The largest weights are kept out
    of the total and added where they belong.
    """
    _, top, rest = _split_dominant(weights)
    return (ops.sum(rest, axis=-1, keepdims=True) - rest) + (
        ops.sum(top, axis=-1, keepdims=True) - top
    )


def _divide_by_distance(upstream, distances):
    """`upstream / distances`; at distance 0 the subgradient 0 is used."""
    is_zero = ops.equal(distances, 0.0)
    safe = ops.where(is_zero, 1.0, distances)
    return ops.where(is_zero, 0.0, upstream / safe)


def anchored_distances(logits: Tensor, magnitude: float = MAGNITUDE) -> Tensor:
    r"""Euclidean distances to the anchors `magnitude * I`, in O(B N).

    \\(d_j^2 = \sum_{k \ne j} z_k^2 + (z_j - m)^2\\), so no anchor is ever
    formed. The sum without j is not computed by subtracting a square from the
    total of squares, so distances and gradients keep full relative precision
    however close they are to an anchor.

    Args:
        logits: (B, N) float tensor. Half precision is computed in float32.
        magnitude: length of the anchors (the paper's alpha), > 0.

    Returns:
        (B, N) distances, same dtype as the logits (at least float32). Their
        gradient at distance 0 is 0. A row with a NaN gives a row of NaN.

    Raises:
        ValueError: a magnitude that is no number in 1e-18...1e18.

    Example:

    >>> import numpy as np
    >>> from cac_tf.layers.anchored_distance import anchored_distances
    >>> np.round(np.asarray(anchored_distances([[10.0, 0.0], [3.0, 4.0]])), 4)
    array([[ 0.    , 14.1421],
           [ 8.0623,  6.7082]], dtype=float32)
    """
    magnitude = checked_magnitude(magnitude)

    @ops.custom_gradient
    def distances_to_anchors(z):
        distances = distances_to_anchors_without_gradient(z, magnitude)

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            weights = _divide_by_distance(upstream, distances)
            return z * _sum_without_each(weights) + weights * (z - magnitude)

        return distances, gradient

    return distances_to_anchors(full_precision(logits))


def distances_to_anchors_without_gradient(
    z: Tensor, magnitude: float
) -> Tensor:
    """(B, N) distances, for graphs that are not trained."""
    size = ops.abs(z)
    top = ops.max(size, axis=-1, keepdims=True, initial=0.0)
    is_top = ops.equal(size, top)
    ties = ops.sum(ops.cast(is_top, z.dtype), axis=-1, keepdims=True) - 1.0
    rest = (
        ops.sum(ops.where(is_top, 0.0, z * z), axis=-1, keepdims=True)
        + ties * top * top
    )
    # rest + top^2 - z_j^2, as a product: a compiler would contract the
    # difference of squares into an FMA that leaves a rounding remainder.
    without_j = rest + (top - size) * (top + size)
    return ops.sqrt(without_j + ops.square(z - magnitude))


def dense_distances(logits: Tensor, centers: Tensor) -> Tensor:
    """Euclidean distances to any centers.

    Few centers (K * D <= 4096) are compared directly. With more, a matrix
    product gives the distances of all pairs. The four nearest centers of each
    row are then compared directly, because the product loses small distances
    to cancellation. On a GPU the product follows the framework's
    TensorFloat-32 setting.

    Args:
        logits: (B, D) float tensor. Half precision is computed in float32.
        centers: (K, D) float tensor.

    Returns:
        (B, K) distances; gradient 0 at distance 0.

    Example:

    >>> import numpy as np
    >>> from cac_tf.layers.anchored_distance import dense_distances
    >>> centers = [[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]
    >>> np.round(np.asarray(dense_distances([[0.0, 0.0]], centers)), 4)
    array([[5., 0., 1.]], dtype=float32)
    """
    logits = full_precision(logits)
    centers = ops.cast(centers, logits.dtype)

    @ops.custom_gradient
    def distances_to_centers(z, c):
        distances = dense_distances_without_gradient(z, c)

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            weights = _divide_by_distance(upstream, distances)
            # The dominant weight belongs to a center that z almost touches:
            # `w z - w c` would cancel, so that pair is subtracted first.
            # (Equal dominant weights share their differences.)
            is_top, top, rest = _split_dominant(weights)
            count = ops.sum(ops.cast(is_top, z.dtype), axis=-1, keepdims=True)
            top_center = ops.matmul(ops.cast(is_top, z.dtype), c) / count
            at_top = ops.where(
                ops.equal(count, 1.0),
                ops.sum(top, axis=-1, keepdims=True) * (z - top_center),
                ops.sum(top, axis=-1, keepdims=True) * z - ops.matmul(top, c),
            )
            for_z = (
                at_top
                + ops.sum(rest, axis=-1, keepdims=True) * z
                - ops.matmul(rest, c)
            )
            for_c = c * ops.expand_dims(ops.sum(weights, axis=0), -1) - (
                ops.matmul(ops.transpose(weights), z)
            )
            return for_z, for_c

        return distances, gradient

    return distances_to_centers(logits, centers)


def dense_distances_without_gradient(z: Tensor, c: Tensor) -> Tensor:
    """(B, K) distances, for graphs that are not trained."""
    if np.prod(c.shape) <= _DIRECT_COORDINATES:
        return direct_distances(z, c)
    return _product_distances(z, c)


def direct_distances(z: Tensor, c: Tensor) -> Tensor:
    """(B, K) distances, all differences formed: (B, K, D) memory."""
    differences = ops.expand_dims(z, 1) - ops.expand_dims(c, 0)
    return ops.sqrt(ops.sum(ops.square(differences), axis=-1))


def _product_distances(z, c):
    squared = (
        ops.sum(z * z, axis=-1, keepdims=True)
        + ops.sum(c * c, axis=-1)
        - 2.0 * ops.matmul(z, ops.transpose(c))
    )
    # ops.maximum would turn NaN into 0 on some backends.
    squared = ops.where(squared < 0.0, 0.0, squared)
    num_centers = c.shape[0]
    nearest = ops.top_k(-squared, min(_RECOMPUTED_NEAREST, num_centers))[1]
    exact = ops.sum(
        ops.square(ops.expand_dims(z, 1) - ops.take(c, nearest, axis=0)),
        axis=-1,
    )
    # (B, nearest, K): where in the row each of the nearest belongs.
    place = ops.equal(
        ops.arange(num_centers, dtype="int32"),
        ops.expand_dims(ops.cast(nearest, "int32"), -1),
    )
    patches = ops.where(place, ops.expand_dims(exact, -1), 0.0)
    squared = ops.where(
        ops.any(place, axis=1), ops.sum(patches, axis=1), squared
    )
    return ops.sqrt(squared)


@keras.saving.register_keras_serializable(package="CacTf")
class AnchoredDistance(keras.layers.Layer):
    """`anchored_distances` as a layer; it has no weights.

    The anchors are `magnitude` times the unit vectors, one per logit (paper,
    section 3.1). Put it after the logits of any network to get their distances
    to the anchors. `losses.CACLoss` reads the logits themselves, so training
    does not need this layer. For learnt centers, or centers whose width differs
    from the number of classes, use `ClassDistances`.

    The layer computes in float32 even under a mixed-precision policy.

    Args:
        magnitude: length of the anchors (the paper's alpha, 10), > 0.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        logits: (B, N), no activation, N at least 2.

    Returns:
        (B, N) Euclidean distances (not squared), float32.

    Raises:
        ValueError: a magnitude that is not a number in 1e-18...1e18, or logits
            that are not (B, N) with at least two classes.

    Example:

    >>> import numpy as np, cac_tf
    >>> layer = cac_tf.layers.AnchoredDistance()
    >>> np.round(np.asarray(layer(np.float32([[10.0, 1.0]]))), 4)
    array([[ 1.    , 13.4536]], dtype=float32)
    """

    def __init__(self, magnitude: float = MAGNITUDE, **kwargs: Any) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        self.magnitude = checked_magnitude(magnitude)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 2 or (input_shape[-1] or 0) < 2:
            raise ValueError(
                "AnchoredDistance needs logits of shape (batch, classes) "
                f"with at least two classes; got {tuple(input_shape)}."
            )

    def call(self, logits: Tensor) -> Tensor:
        return anchored_distances(logits, self.magnitude)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "magnitude": self.magnitude}
