# SPDX-License-Identifier: Apache-2.0
"""Distances from logits to class centers (paper, section 3.1)."""

import typing
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import keras_private
from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.arguments import as_float
from cac_tf.arguments import whole_number
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
    >>> from cac_tf.layers import anchored_distances
    >>> np.round(np.asarray(anchored_distances([[10.0, 0.0], [3.0, 4.0]])), 4)
    array([[ 0.    , 14.1421],
           [ 8.0623,  6.7082]], dtype=float32)
    """
    magnitude = checked_magnitude(magnitude)

    @ops.custom_gradient
    def distances_to_anchors(z):
        distances = _distances_to_anchors(z, magnitude)

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            weights = _divide_by_distance(upstream, distances)
            return z * _sum_without_each(weights) + weights * (z - magnitude)

        return distances, gradient

    return distances_to_anchors(full_precision(logits))


def _distances_to_anchors(z, magnitude):
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
    >>> from cac_tf.layers import dense_distances
    >>> centers = [[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]
    >>> np.round(np.asarray(dense_distances([[0.0, 0.0]], centers)), 4)
    array([[5., 0., 1.]], dtype=float32)
    """
    logits = full_precision(logits)
    centers = ops.cast(centers, logits.dtype)

    @ops.custom_gradient
    def distances_to_centers(z, c):
        distances = _dense_distances(z, c)

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


def _dense_distances(z, c):
    if np.prod(c.shape) <= _DIRECT_COORDINATES:
        return _direct_distances(z, c)
    return _product_distances(z, c)


def _direct_distances(z, c):
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


class Anchors(typing.NamedTuple):
    """What a loss needs to compute the distances from the logits alone."""

    magnitude: float
    # Scalar bool tensor: false once class means have replaced the anchors.
    are_in_force: typing.Any
    # (N, N) centers that are in force otherwise; None: there were none yet.
    class_means: typing.Any = None


@keras.saving.register_keras_serializable(package="CacTf")
class AnchoredDistance(keras.layers.Layer):
    """Distances from logits to one center per known class.

    The centers start as anchors, `magnitude` times the unit vectors, and
    training leaves them there (paper, section 3.1). Afterwards
    `assign_class_means` may replace them by class means. Learnt centers are a
    trainable weight that starts at the anchors.

    Anchors are not stored, because N classes would need N x N numbers. The
    flag that says whether the centers are anchors is a weight, and so are the
    class means once they are assigned. Both are saved, loaded and exported
    with the model.

    The layer computes in float32 even under a mixed-precision policy.

    Args:
        num_classes: number K of centers, at least 2.
        magnitude: length of the anchors (the paper's alpha, 10), > 0.
        width: number D of logits; by default K. With fewer logits than
            centers there are no anchors: class means must be assigned first
            (learnt centers start in random directions).
        learnt: whether the centers are trained.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        logits: (B, D), no activation.

    Returns:
        (B, K) Euclidean distances (not squared), float32.

    Raises:
        ValueError: fewer than two classes, a magnitude that is no number in
            1e-18...1e18, logits that are not (B, D), or a call without
            centers.

    Example:

    >>> import numpy as np, cac_tf
    >>> head = cac_tf.layers.AnchoredDistance(num_classes=2)
    >>> np.round(np.asarray(head(np.float32([[10.0, 1.0]]))), 4)
    array([[ 1.    , 13.4536]], dtype=float32)
    >>> head.assign_class_means(np.float32([[10.0, 1.0], [1.0, 9.0]]))
    >>> np.round(np.asarray(head(np.float32([[10.0, 1.0]]))), 4)
    array([[ 0.    , 12.0416]], dtype=float32)
    """

    def __init__(
        self,
        num_classes: int,
        magnitude: float = MAGNITUDE,
        *,
        width: int | None = None,
        learnt: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        # (A single class leaves nothing to distinguish.)
        self.num_classes = whole_number("num_classes", num_classes, least=2)
        width = num_classes if width is None else width
        self.width = whole_number("width", width)
        self.magnitude = checked_magnitude(magnitude)
        self.learnt = bool(learnt)
        # Set without Keras' tracking, which already has them as weights.
        object.__setattr__(self, "_stored", None)
        # How often weights were added: functions compiled earlier do not
        # know them.
        object.__setattr__(self, "layout", 0)
        object.__setattr__(self, "_was_compiled", False)

    @property
    def _can_have_anchors(self):
        return self.width >= self.num_classes

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 2 or input_shape[-1] != self.width:
            raise ValueError(
                f"AnchoredDistance(num_classes={self.num_classes}, "
                f"width={self.width}) needs logits of shape (batch, "
                f"{self.width}); got {tuple(input_shape)}."
            )
        has_anchors = self._can_have_anchors and not self.learnt
        self.centers_are_anchors = self.add_weight(
            name="centers_are_anchors",
            shape=(),
            initializer="ones" if has_anchors else "zeros",
            dtype="bool",
            trainable=False,
        )
        if self.learnt:
            self._store(self.start)
        self.built = True

    @property
    def start(self) -> np.ndarray:
        """(K, D) float32 array: the centers before any were assigned."""
        if self._can_have_anchors:
            return self.magnitude * np.eye(
                self.num_classes, self.width, dtype="float32"
            )
        shape = (self.num_classes, self.width)
        directions = np.random.default_rng(0).standard_normal(shape)
        lengths = np.linalg.norm(directions, axis=-1, keepdims=True)
        return (self.magnitude * directions / lengths).astype("float32")

    def _store(self, centers):
        """Stores centers in a weight, which is created the first time."""
        if self._stored is None:
            made = keras_private.add_late_weight(
                self,
                "centers",
                (self.num_classes, self.width),
                "zeros",
                trainable=self.learnt,
            )
            object.__setattr__(self, "_stored", made)
            object.__setattr__(self, "layout", self.layout + 1)
        self._stored.assign(centers)

    def call(self, logits: Tensor) -> Tensor:
        self._notice_compilation(logits)
        if self._stored is None:
            self._require_centers()
            return self._to_anchors(anchored_distances(logits, self.magnitude))
        if self.learnt or not self._can_have_anchors:
            return dense_distances(logits, ops.convert_to_tensor(self._stored))
        # A weight decides, not a Python attribute: compiled functions and
        # freshly loaded weights must see the same state.
        return ops.cond(
            ops.equal(self.centers_are_anchors, True),
            lambda: self._to_anchors(
                anchored_distances(logits, self.magnitude)
            ),
            lambda: dense_distances(
                logits, ops.convert_to_tensor(self._stored)
            ),
        )

    def _notice_compilation(self, logits):
        """TensorFlow's graphs do not see weights that are added later."""
        if keras.backend.backend() == "tensorflow" and not (
            isinstance(logits, keras.KerasTensor) or hasattr(logits, "numpy")
        ):
            object.__setattr__(self, "_was_compiled", True)

    def _require_centers(self):
        if not self._can_have_anchors:
            raise ValueError(
                f"There are no anchors for {self.num_classes} classes in "
                f"{self.width} dimensions: call assign_class_means first."
            )

    def _to_anchors(self, distances):
        """Only the distances to the anchors of the classes."""
        if self.width == self.num_classes:
            return distances
        return distances[:, : self.num_classes]

    def current_formula(
        self, direct: bool = False
    ) -> Callable[[Tensor], Tensor]:
        """The layer as a function, for the kind of centers now in force.

        For export: a single formula with the current centers, without a
        branch and without a gradient.

        Args:
            direct: whether to form all differences directly, for any number
                of classes: no matrix product, but (B, K, D) memory.
        """
        if self.has_anchors:
            return lambda logits: self._to_anchors(
                _distances_to_anchors(full_precision(logits), self.magnitude)
            )
        # A constant: whatever depends only on centers is computed once.
        centers = self.centers
        formula = _direct_distances if direct else _dense_distances
        return lambda logits: formula(full_precision(logits), centers)

    @property
    def has_anchors(self) -> bool:
        """Whether the centers in force are the anchors (Python bool)."""
        if not self.built:
            return self.trains_with_anchors
        return bool(ops.convert_to_numpy(self.centers_are_anchors))

    @property
    def trains_with_anchors(self) -> bool:
        """Whether training is with anchors, which class means then replace."""
        return self._can_have_anchors and not self.learnt

    @property
    def anchors(self) -> Anchors | None:
        """`Anchors` if the centers can be anchors with K = D, else None."""
        if self.learnt or self.width != self.num_classes:
            return None
        # Compared, because `where` of JAX takes no variable.
        are_in_force = ops.equal(self.centers_are_anchors, True)
        means = self._stored
        if means is not None:
            means = ops.convert_to_tensor(means)
        return Anchors(self.magnitude, are_in_force, means)

    @property
    def centers(self) -> np.ndarray:
        """(K, D) float32 array: the centers in force."""
        if self.has_anchors or (self.learnt and self._stored is None):
            return self.start
        if self._stored is None:
            self._require_centers()
        return ops.convert_to_numpy(self._stored)

    def _warn_of_compiled_functions(self):
        if self._was_compiled and self._stored is None:
            warnings.warn(
                "Functions that were compiled before now still take the "
                "anchors as centers. Compile their model again: "
                "model.compile(...), or model.make_predict_function("
                "force=True).",
                stacklevel=3,
            )

    def assign_class_means(self, class_means: ArrayLike) -> None:
        """Replaces the centers by class means.

        The first call adds a weight to the layer. A function that TensorFlow
        compiled earlier does not know this weight, and a warning says so.
        (`OpenSetClassifier` recompiles its own functions.)

        Args:
            class_means: (K, D) finite array, one row per class.

        Raises:
            ValueError: another shape, or an entry that is not finite.
        """
        self._warn_of_compiled_functions()
        self.replace_centers(class_means)

    def replace_centers(self, class_means: ArrayLike) -> None:
        """`assign_class_means` for callers that recompile their functions."""
        class_means = np.asarray(class_means, dtype="float32")
        expected = (self.num_classes, self.width)
        if class_means.shape != expected:
            raise ValueError(
                f"class_means must have shape {expected}; got "
                f"{class_means.shape}."
            )
        if not np.isfinite(class_means).all():
            rows = np.flatnonzero(~np.isfinite(class_means).all(axis=1))
            raise ValueError(
                f"class_means must be finite; rows {rows.tolist()} are not."
            )
        if not self.built:
            self.build((None, self.width))
        self._store(class_means)
        self.centers_are_anchors.assign(False)

    def assign_anchors(self) -> None:
        """Restores the anchors after class means have replaced them.

        Raises:
            ValueError: the centers are learnt, or there are no anchors.
        """
        self._require_centers()
        if self.learnt:
            raise ValueError("Learnt centers cannot be reset to the anchors.")
        if self.built:
            self.centers_are_anchors.assign(True)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_classes)

    def get_build_config(self) -> Config | None:
        if not self.built:
            return None
        return {
            "input_shape": [None, self.width],
            "stores_centers": self._stored is not None,
        }

    def build_from_config(self, config: Config) -> None:
        self.build(config["input_shape"])
        if config["stores_centers"] and self._stored is None:
            self._store(np.zeros((self.num_classes, self.width), "float32"))

    def load_own_variables(self, store: Any) -> None:
        """As in Keras, but also accepts weights of the other kind of centers.

        A layer with anchors has one weight, one with class means has two (see
        `_store`).
        """
        if self.built and not self.learnt:
            names = set(store.keys())
            if names == {"0", "1"} and self._stored is None:
                self._warn_of_compiled_functions()
                self._store(np.zeros((self.num_classes, self.width), "float32"))
            elif names == {"0"} and np.all(store["0"]):
                self.assign_anchors()
                return
        super().load_own_variables(store)

    def copy_centers(self, other: "AnchoredDistance") -> None:
        """Copies the centers in force from another head."""
        if other.has_anchors:
            self.assign_anchors()
        else:
            self.replace_centers(other.centers)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "magnitude": self.magnitude,
            "width": self.width,
            "learnt": self.learnt,
        }
