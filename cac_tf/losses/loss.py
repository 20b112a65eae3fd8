# SPDX-License-Identifier: Apache-2.0
"""What every loss of an open-set classifier has in common."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.arguments import as_float
from cac_tf.labels import UNKNOWN
from cac_tf.registry import Registry

_LOSSES = Registry("loss", "cac_tf.losses", but=("loss",), named_by_files=False)
register = _LOSSES.register
names, find = _LOSSES.names, _LOSSES.get


class Loss(keras.losses.Loss):
    """A Keras loss on a classifier's logits, or on several named outputs.

    A subclass defines `call(y_true, y_pred)`, which returns one value per
    input. It works wherever Keras takes a loss: `compile(loss=...)`, Keras'
    dict of losses by output, a custom training loop.

    A loss that needs outputs other than the logits lists them in `READS`;
    `y_pred` is then the output itself if there is one name, and a dict by name
    if there are several, as the methods of this package pass it. A loss
    registered (`@register`) under a `NAME` is included in the conformance
    tests.

    Args:
        ignore_class: a label whose rows are left out of the loss, such as -1
            for unknown inputs in validation data. None: no label is ignored,
            and the loss of a row with an invalid label is NaN.
        name, reduction: as for every Keras loss.
        dtype: type of the computation; float32 by default, and instead of half
            precision, which cannot represent every class index.

    Call arguments:
        y_true: (B,) or (B, 1) class indices. With `TAKES_NEGATIVES`, -1 labels
            negatives: inputs of other classes that represent the unknown in
            training.
        y_pred: output, or dict of outputs.
        sample_weight: optional (B,).

    Example:

    >>> import numpy as np
    >>> class Length(Loss):
    ...     READS = ("features",)
    ...     def call(self, y_true, y_pred):
    ...         return ops.sqrt(ops.sum(ops.square(y_pred), axis=-1))
    >>> float(Length()(np.array([0]), np.float32([[3, 4]])))
    5.0
    """

    NAME: str | None = None
    READS: tuple[str, ...] = ("logits",)
    TAKES_NEGATIVES = False

    def __init__(
        self,
        *,
        ignore_class: int | None = None,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> None:
        policy = keras.dtype_policies.get(dtype or keras.config.floatx())
        if policy.compute_dtype in ("float16", "bfloat16"):
            dtype = "float32"
        super().__init__(
            name=name or self.NAME, reduction=reduction, dtype=dtype
        )
        self.ignore_class = ignore_class

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        if self.ignore_class is not None:
            is_counted = ops.logical_not(is_label(y_true, self.ignore_class))
            y_true, y_pred = only_rows(is_counted, y_true, y_pred)
            sample_weight = weights_of_counted(
                is_counted, sample_weight, self.reduction
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def get_config(self) -> Config:
        own = {"ignore_class": self.ignore_class, "dtype": self.dtype}
        return {**super().get_config(), **own}


def checked_weight(value: float, name: str = "weight") -> float:
    """A weight in a loss as a float; ValueError if it is none."""
    number = as_float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and >= 0; got {value!r}.")
    return number


def select(outputs: Outputs, names: Sequence[str]) -> Tensor:
    """One output by its name, or a dict of several."""
    if len(names) == 1:
        return outputs[names[0]]
    return {name: outputs[name] for name in names}


def is_label(labels: Tensor, label: int) -> Tensor:
    """Whether each label is this one, bool of their shape."""
    labels = ops.convert_to_tensor(labels)
    is_unsigned = keras.backend.standardize_dtype(labels.dtype).startswith("u")
    if is_unsigned and label < 0:
        # JAX would take -1 for the largest unsigned number.
        return ops.zeros_like(labels, dtype="bool")
    return ops.equal(labels, label)


def is_known(labels: Tensor) -> Tensor:
    """(B,) bool: whether a label is that of a known class."""
    return ops.logical_not(is_label(ops.reshape(labels, (-1,)), UNKNOWN))


def known_labels(labels: Tensor) -> Tensor:
    """The labels, with class 0 in place of those of no known class.

    For rows whose weight is 0, which a loss still computes.
    """
    labels = ops.convert_to_tensor(labels)
    return ops.where(is_label(labels, UNKNOWN), ops.zeros_like(labels), labels)


def only_counted(is_counted: Tensor, values: Tensor) -> Tensor:
    """Values in which each row that does not count repeats one that does.

    A weight of 0 alone does not leave a row out: 0 times infinity is NaN, in
    the loss and in its gradient. In a batch where none counts, the values stay,
    with 1 in place of those that are not finite.

    Args:
        is_counted: (B,) or (B, 1) bool.
        values: (B, ...), of any type.

    Example:

    >>> import numpy as np
    >>> values = np.float32([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0]])
    >>> np.asarray(only_counted(np.array([False, False, True]), values))
    array([[4., 5.],
           [4., 5.],
           [4., 5.]], dtype=float32)
    """
    values = ops.convert_to_tensor(values)
    is_counted = ops.reshape(is_counted, (-1,))
    count = ops.cumsum(ops.cast(is_counted, "int32"))
    is_first = ops.logical_and(is_counted, ops.equal(count, 1))

    def of_rows(mask):
        return ops.reshape(mask, (-1, *(1,) * (len(values.shape) - 1)))

    # A sum of one, because a batch without rows has no first one.
    row = ops.sum(
        ops.where(of_rows(is_first), values, ops.zeros_like(values)),
        axis=0,
        keepdims=True,
    )
    finite = values
    if keras.backend.is_float_dtype(values.dtype):
        finite = ops.where(ops.isfinite(values), values, ops.ones_like(values))
    row = ops.cast(row, values.dtype)
    rest = ops.where(ops.any(is_counted), row, finite)
    return ops.where(of_rows(is_counted), values, ops.stop_gradient(rest))


def only_rows(
    is_counted: Tensor, labels: Tensor, outputs: Outputs | Tensor
) -> tuple[Tensor, Any]:
    """`only_counted` of labels and outputs; class 0 stands for other labels.

    Args:
        is_counted: (B,) or (B, 1) bool.
        labels: (B,) or (B, 1).
        outputs: a tensor of B rows, or a dict of such tensors.
    """
    labels = ops.convert_to_tensor(labels)
    labels = ops.where(is_counted, labels, ops.zeros_like(labels))
    if isinstance(outputs, dict):
        rows = {
            name: only_counted(is_counted, values)
            for name, values in outputs.items()
        }
    else:
        rows = only_counted(is_counted, outputs)
    return only_counted(is_counted, labels), rows


def weights_of_counted(
    is_counted: Tensor, sample_weight: Tensor | None, reduction: str | None
) -> Tensor:
    """Sample weights with which only the counted rows form the loss.

    Args:
        is_counted: (B,) or (B, 1) bool; the others get weight 0.
        sample_weight: the caller's (B,) weights or None.
        reduction: of the loss. A mean over the batch is scaled up so that it
            becomes the mean over the counted rows.

    Returns:
        (B,) float32 weights.
    """
    is_counted = ops.reshape(is_counted, (-1,))
    weights = ops.cast(is_counted, "float32")
    if reduction in ("sum_over_batch_size", "mean"):
        total = ops.cast(ops.shape(weights)[0], "float32")
        weights = weights * ops.divide_no_nan(total, ops.sum(weights))
    if sample_weight is not None:
        given = ops.reshape(ops.cast(sample_weight, "float32"), (-1,))
        # (0 times NaN would be NaN.)
        weights = weights * ops.where(is_counted, given, 0.0)
    return weights
