# SPDX-License-Identifier: Apache-2.0
"""The decision between the known classes and "unknown" (equation 9)."""

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Config
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.decision import rule
from cac_tf.layers.precision import full_precision


def class_of_logits(logits: Tensor, distances: Tensor) -> Tensor:
    """(B,) int32: the class with the largest logit.

    Where there are more or fewer logits than classes, no class has one of its
    own, and the closest center decides.

    Args:
        logits: (B, D).
        distances: (B, N).
    """
    has_one_of_each = logits.shape[-1] == distances.shape[-1]
    return nearest_class(-logits if has_one_of_each else distances)


def nearest_class(scores: Tensor) -> Tensor:
    """Index of the smallest entry of each row, int32.

    `keras.ops.argmin` inspects float bits on TensorFlow, in operations that
    converters to other runtimes refuse; `tf.argmin` does not.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.argmin(scores, axis=-1, output_type=tf.int32)
    return ops.cast(ops.argmin(scores, axis=-1), "int32")


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetDecision(keras.layers.Layer):
    """From rejection scores and the threshold to a class index, or -1 for
    "unknown".

    An input is unknown if the smallest of its rejection scores exceeds the
    threshold; otherwise it belongs to the class with that score (equation 9). A
    row with a NaN is unknown. The threshold is a weight, saved and exported
    with the model.

    Args:
        threshold: a finite number, or one per class, or None to set it later.
        lowest: lower bound of the scores; a threshold below it is an error.
            None: there is no bound.
        **kwargs: passed to `keras.layers.Layer`; `dtype` defaults to float32.

    Call arguments:
        scores: (B, N), smaller = more like this class: the gamma of
            `RejectionScore`.
        threshold: optional threshold for this call, a scalar or one per row.

    Returns:
        (B,) int32 class indices in 0...N-1, or -1.

    Raises:
        ValueError: no threshold is set and none is given (in compiled code,
            every row is unknown instead); an invalid threshold, also in loaded
            weights.

    Example:

    >>> import numpy as np, cac_tf
    >>> decide = cac_tf.layers.OpenSetDecision(threshold=1.5)
    >>> np.asarray(decide(np.float32([[0.2, 9.0], [4.0, 5.0]])))
    array([ 0, -1], dtype=int32)
    >>> decide.threshold = [0.1, 0.5]
    >>> np.asarray(decide(np.float32([[0.2, 9.0], [4.0, 0.4]])))
    array([-1,  1], dtype=int32)
    """

    def __init__(
        self,
        threshold: ArrayLike | None = None,
        *,
        lowest: float | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**kwargs)
        self.lowest = lowest
        self._initial: np.ndarray | None = None
        self._threshold: Any = None
        self._read = np.full((), np.nan, "float32")
        self.threshold = threshold

    def build(self, input_shape: Shape) -> None:
        num_classes = input_shape[-1]
        initial = np.nan if self._initial is None else self._initial
        if np.ndim(initial):
            rule.check_threshold(initial, num_classes)
        # NaN stands for "no threshold": every comparison with it rejects.
        self._threshold = self.add_weight(
            name="threshold",
            shape=(num_classes,),
            initializer=lambda shape, dtype: ops.broadcast_to(
                ops.cast(initial, dtype), shape
            ),
            dtype="float32",
            trainable=False,
        )
        self.built = True

    @property
    def threshold(self) -> Any:
        """The threshold: a Python float, an (N,) array, or None if not set.

        It can be set to a finite number, to one number per class, or to None.
        """
        values = self._initial
        if self._threshold is not None:
            values = self._threshold.numpy()
        if values is None or np.isnan(values).any():
            return None
        is_one = np.ndim(values) == 0 or (values == values[0]).all()
        return float(values.flat[0]) if is_one else np.array(values)

    @threshold.setter
    def threshold(self, value: ArrayLike | None) -> None:
        shape = () if self._threshold is None else self._threshold.shape
        if value is not None:
            value = rule.check_threshold(
                value, shape[0] if shape else None, self.lowest
            )
        if self._threshold is None:
            self._initial = value
            return
        value = np.float32(np.nan) if value is None else value
        self._threshold.assign(np.broadcast_to(value, shape))

    def load_own_variables(self, store: Any) -> None:
        # Of a layer that stands in a model twice, Keras tries the second place
        # after the first, without values, and tells of that error alone.
        if "0" in store.keys():  # noqa: SIM118
            self._read = np.asarray(store["0"])
        if not np.isnan(self._read).all():
            rule.check_threshold(self._read, lowest=self.lowest)
        super().load_own_variables(store)

    @property
    def thresholds(self) -> Tensor:
        """(N,) tensor: the threshold of each class, NaN while there is none."""
        return ops.convert_to_tensor(self._threshold)

    def call(self, scores: Tensor, threshold: Tensor | None = None) -> Tensor:
        scores = full_precision(scores)
        predicted = nearest_class(scores)
        if threshold is None:
            if self._is_concrete(scores) and self.threshold is None:
                raise ValueError(
                    "No threshold is set, so inputs cannot be accepted or "
                    "rejected. Set one: OpenSetDecision(threshold=...), or "
                    "OpenSetClassifier.calibrate(...)."
                )
            threshold = rule.threshold_of_rows(self.thresholds, predicted)
        # Compilers disagree on what NaN becomes in a minimum.
        has_nan = ops.any(ops.isnan(scores), axis=-1)
        return rule.decide(
            ops.min(scores, axis=-1, initial=np.inf),
            predicted,
            ops.cast(threshold, scores.dtype),
            ops.logical_not(has_nan),
        )

    @staticmethod
    def _is_concrete(tensor):
        if isinstance(tensor, keras.KerasTensor):
            return False
        if keras.backend.backend() == "tensorflow":
            return hasattr(tensor, "numpy")
        if keras.backend.backend() == "jax":
            import jax

            return not isinstance(tensor, jax.core.Tracer)
        return True

    def compute_output_shape(
        self, input_shape: Shape, threshold_shape: Shape | None = None
    ) -> Shape:
        return input_shape[:-1]

    def compute_output_spec(
        self, scores: Tensor, threshold: Tensor | None = None
    ) -> Tensor:
        return keras.KerasTensor(scores.shape[:-1], dtype="int32")

    def get_config(self) -> Config:
        threshold = self.threshold
        if isinstance(threshold, np.ndarray):
            threshold = threshold.tolist()
        own = {"threshold": threshold, "lowest": self.lowest}
        return {**super().get_config(), **own}
