# SPDX-License-Identifier: Apache-2.0
"""What every rejection score has in common."""

import functools
import math
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import keras_private
from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.labels import check_labels
from cac_tf.layers.open_set_decision import class_of_logits
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.scores.registry import find

# Outputs of the classifier that are small for the class of an input.
_OF_CENTERS = ("distances", "gamma")


class LastLayer(typing.NamedTuple):
    """The dense layer that turns features into logits: `z = x W + b`."""

    kernel: np.ndarray  # (D, N)
    bias: np.ndarray  # (N,)


class Known(typing.NamedTuple):
    """What a score is fitted with, besides the examples."""

    class_names: tuple[str, ...]
    # None if no dense layer computes the logits from these features.
    last_layer: LastLayer | None = None


class KnownBatch:
    """Examples of known classes with the classifier's outputs for them.

    `batch["features"]` gives an output by name, a float32 array of n rows.

    Args:
        labels: (n,) int64 class indices.
        inputs: (n, ...) array that the outputs were computed from, for `keys`.
        outputs: dict from output names to arrays; it has `logits` wherever a
            classifier computed them.
        has_anchors: whether training was with anchors, so that the largest
            logit is that of the nearest anchor; otherwise `distances` are
            among the outputs.
        num_classes: N; None: as many as logits.
    """

    def __init__(
        self,
        labels: np.ndarray,
        inputs: np.ndarray,
        outputs: Mapping[str, np.ndarray],
        has_anchors: bool = True,
        num_classes: int | None = None,
    ) -> None:
        self.labels, self._inputs, self._outputs = labels, inputs, outputs
        self._has_anchors, self._num_classes = has_anchors, num_classes

    def __getitem__(self, name):
        return self._outputs[name]

    @functools.cached_property
    def keys(self) -> np.ndarray:
        """(n,) uint64, computed from the inputs alone: see `keys_of`."""
        return keys_of(self._inputs)

    @property
    def is_correct(self) -> np.ndarray:
        """(n,) bool: whether the anchor of the example's class is the nearest.

        That is, whether its class has the largest logit; logits beyond those of
        the known classes are ignored. Without anchors the nearest center counts
        instead.
        """
        if not self._has_anchors:
            return self["distances"].argmin(axis=-1) == self.labels
        logits = self["logits"][:, : self._num_classes]
        return logits.argmax(axis=-1) == self.labels


def keys_of(inputs: np.ndarray) -> np.ndarray:
    """A random-looking number for each input, the same in every run.

    A choice of examples by these keys depends neither on the order of the
    examples nor on how they are batched.

    Args:
        inputs: (n, ...) array.

    Returns:
        (n,) uint64.

    Example:

    >>> one, two = keys_of(np.zeros((1, 3))), keys_of(np.zeros((2, 3)))
    >>> bool(one[0] == two[1])
    True
    """
    inputs = np.ascontiguousarray(inputs)
    width = math.prod(inputs.shape[1:]) * inputs.itemsize
    rows = inputs.reshape(-1).view("uint8").reshape(len(inputs), width)
    rows = np.pad(rows, ((0, 0), (0, -width % 4))) if width % 4 else rows
    words = rows.view("uint32")
    # Multilinear hashing modulo 2^64, whose high bits are the good ones, then
    # the last steps of SplitMix64, which make all bits alike.
    keys = np.einsum("ij,j->i", words, _odd_numbers(words.shape[1]))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    return keys ^ (keys >> np.uint64(31))


@functools.lru_cache(maxsize=4)
def _odd_numbers(count):
    """(count,) uint64, random but always the same."""
    return np.random.PCG64(0).random_raw(count) | np.uint64(1)


class Score(keras.layers.Layer):
    """A rule that gives each input an unknown score, larger = more unknown.

    A subclass is added with `@register`, in a file of this folder or in
    another package. It has a `NAME`, says which outputs of the classifier it
    reads (`READS`) and defines `call`, with operations that every backend and
    every exported graph has. A score that learns from known training data sets
    `IS_FITTED_TO_DATA` and defines `start_fit`, `add_batch` and `finish_fit`.
    Each example is seen once, in a batch, and only what these methods keep
    stays in memory.

    Call arguments:
        one float tensor for each of `READS`, in that order: "logits",
        "distances" or "gamma", (B, N), "features", (B, D), or any other
        output that a backbone returns by name.

    Returns:
        (B,) float32 unknown scores.
    """

    NAME: str | None = None
    READS: tuple[str, ...] = ()
    IS_FITTED_TO_DATA = False
    # Whether the statistics should come from data not used for training:
    # `fit_centers` takes training data, the command line validation data.
    WANTS_HELD_OUT_DATA = False
    # Whether logit k must be that of class k; false of a head that is narrower
    # than there are classes.
    NEEDS_A_LOGIT_OF_EACH_CLASS = False
    # Correctly classified examples that a fit needs of each class.
    FEWEST_OF_A_CLASS = 0
    # Whether scores are never below 0, so that a threshold below 0 is an error.
    IS_NON_NEGATIVE = False

    def __init__(self, **kwargs: Any) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        kwargs["name"] = kwargs.get("name") or self.NAME
        super().__init__(**kwargs)
        # Set without Keras' tracking, which already has them as weights.
        object.__setattr__(self, "_statistics", {})
        # How often the statistics' variables were replaced: functions compiled
        # earlier hold the old ones.
        object.__setattr__(self, "layout", 0)

    @property
    def reads_distances(self) -> bool:
        """Whether the score depends on the centers."""
        return bool(set(_OF_CENTERS) & set(self.READS))

    def arguments_of(self, outputs: Outputs) -> list[Tensor]:
        """The arguments of a call, from a classifier's outputs by name."""
        return [outputs[name] for name in self.READS]

    def predicted_class(self, outputs: Outputs) -> Tensor:
        """(B,) int32: the predicted class of each input, before rejection.

        The class with the largest logit or, for scores that read distances
        and where there are fewer logits than classes, with the closest center.

        Args:
            outputs: dict of tensors: `logits`, `distances`, `gamma`, ...;
                logits beyond those of the known classes are ignored.
        """
        for name in self.READS:
            if name in _OF_CENTERS:
                return nearest_class(outputs[name])
        return class_of_logits(outputs["logits"], outputs["distances"])

    @property
    def reads_for_prediction(self) -> tuple[str, ...]:
        """Names of the outputs that the score and predicted class need."""
        return tuple(dict.fromkeys((*self.READS, "logits", "distances")))

    def of_arrays(self, *values: np.ndarray) -> np.ndarray:
        """The score of NumPy arrays, as a NumPy array.

        Not through Keras' `__call__`, which takes longer than many a score.
        """
        tensors = [ops.convert_to_tensor(value, "float32") for value in values]
        return ops.convert_to_numpy(self.call(*tensors))

    def copy(self) -> Self:
        """A separate score with the same settings and statistics."""
        other = type(self).from_config(self.get_config())
        other.build_from_config(self.get_build_config())
        other.set_weights(self.get_weights())
        return other

    # ---- statistics -------------------------------------------------------

    def start_fit(self, num_classes: int) -> Any:
        """Returns an object, of any kind, in which a fit collects data."""

    def add_batch(self, kept: Any, batch: KnownBatch) -> None:
        """Adds a `KnownBatch` to that object."""

    def finish_fit(self, kept: Any, known: Known) -> None:
        """Computes the statistics from that object and a `Known`.

        Raises:
            ValueError: there are too few examples, or the score cannot be
                fitted to them.
        """

    def fit(
        self,
        labels: ArrayLike,
        *,
        class_names: Sequence[str] | None = None,
        last_layer: LastLayer | None = None,
        **outputs: ArrayLike,
    ) -> None:
        """Fits the score to examples of known classes, all at once.

        `OpenSetClassifier.fit_centers` and `fit_score` do it in batches. (This
        method does not touch the theta of a classifier that uses the score.)

        Args:
            labels: (n,) class indices.
            class_names: names of the classes; default: the indices, as many as
                there are logits.
            last_layer: `LastLayer`, where the score reads features.
            **outputs: arrays by name: `logits`, (n, N), and whatever else
                `READS` names.

        Raises:
            ValueError: labels that are no class indices, or not as many as
                rows of an output; an output that is not finite; see also
                `finish_fit`.
        """
        arrays = {k: np.asarray(v, "float32") for k, v in outputs.items()}
        missing = [name for name in self.READS if name not in arrays]
        if missing:
            raise ValueError(
                f"The score {self.name!r} is fitted with "
                f"{', '.join(self.READS)}; {', '.join(missing)} is missing."
            )
        if class_names is not None:
            num_classes = len(class_names)
        elif "logits" in arrays:
            num_classes = arrays["logits"].shape[-1]
        else:
            any_labels = check_labels(labels, np.iinfo("int32").max)
            num_classes = int(any_labels.max(initial=0)) + 1
        if class_names is None:
            class_names = tuple(map(str, range(num_classes)))
        checked = check_labels(labels, num_classes)
        for name, array in arrays.items():
            if len(array) != len(checked):
                raise ValueError(
                    f"The score {self.name!r} got {len(checked)} labels for "
                    f"{len(array)} rows of {name}."
                )
            if not np.isfinite(array).all():
                row = int(np.argwhere(~np.isfinite(array))[0, 0])
                raise ValueError(
                    f"The score {self.name!r} cannot be fitted to {name} that "
                    f"are not finite; row {row} holds NaN or infinity."
                )
        kept = self.start_fit(num_classes)
        batch = KnownBatch(
            checked, arrays[self.READS[0]], arrays, num_classes=num_classes
        )
        self.add_batch(kept, batch)
        self.finish_fit(kept, Known(tuple(class_names), last_layer))

    @property
    def is_fitted(self) -> bool:
        """Whether the score can be used."""
        if not self.IS_FITTED_TO_DATA:
            return True
        return bool(self._statistics) and bool(
            self._statistics["is_fitted"].numpy()
        )

    def reset(self) -> None:
        """Discards the statistics."""
        if not (self.IS_FITTED_TO_DATA and self.is_fitted):
            return
        for name, value in self._statistics.items():
            if name == "is_fitted":
                value.assign(False)
            else:
                value.assign(np.full(value.shape, np.nan, "float32"))

    def statistic(self, name: str) -> Tensor:
        """A statistic of the last fit, as a tensor.

        Raises:
            ValueError: the score was never fitted.
        """
        if not self._statistics:
            raise ValueError(f"The score {self.name!r} is not fitted.")
        return ops.convert_to_tensor(self._statistics[name])

    def set_statistics(self, **arrays: ArrayLike) -> None:
        """Stores statistics as weights, saved and exported with the model.

        Args:
            **arrays: finite float arrays by name, of any shape.
        """
        with np.errstate(over="ignore"):
            values = {k: np.asarray(v, "float32") for k, v in arrays.items()}
        # All are checked before the first one is changed.
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise ValueError(
                    f"The score {self.name!r} cannot be fitted to these "
                    f"examples: its {name} would not be finite."
                )
        shapes = {name: value.shape for name, value in values.items()}
        if shapes == self.shapes:
            for name, value in values.items():
                self._statistics[name].assign(value)
        else:
            self._make_weights(values)
        self._statistics["is_fitted"].assign(True)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the statistics by name; empty before the first fit."""
        return {
            name: tuple(value.shape)
            for name, value in self._statistics.items()
            if name != "is_fitted"
        }

    def make_room(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Makes weights for statistics of these shapes, or none for none.

        Weights that have these shapes already stay as they are.
        """
        shapes = {name: tuple(shape) for name, shape in shapes.items()}
        if shapes != self.shapes:
            # Nothing is copied: they are read-only views of one number.
            self._make_weights(
                {
                    name: np.broadcast_to(np.float32(np.nan), shape)
                    for name, shape in shapes.items()
                }
            )

    def _make_weights(self, values):
        """Replaces the weights by others that start with these values."""
        for value in self._statistics.values():
            keras_private.forget_weight(self, value)
        object.__setattr__(self, "_statistics", {})
        object.__setattr__(self, "layout", self.layout + 1)
        if not values:
            return

        # Large statistics are written once.
        def initializer(value):
            return lambda shape, dtype: ops.convert_to_tensor(value, dtype)

        made = {
            name: keras_private.add_late_weight(
                self, name, value.shape, initializer(value)
            )
            for name, value in values.items()
        }
        made["is_fitted"] = keras_private.add_late_weight(
            self, "is_fitted", (), "zeros", dtype="bool"
        )
        object.__setattr__(self, "_statistics", made)

    def get_build_config(self) -> Config | None:
        # Lists, as JSON returns them.
        return {"statistics": {k: list(v) for k, v in self.shapes.items()}}

    def build_from_config(self, config: Config) -> None:
        self.make_room(config.get("statistics") or {})

    def build(self, *input_shapes: Shape) -> None:
        """Creates nothing: a fit creates the statistics."""
        self.built = True

    def compute_output_shape(self, *input_shapes: Shape) -> Shape:
        return input_shapes[0][:-1]


def get(score: str | Score) -> Score:
    """A `Score` from its name, or the object itself.

    Raises:
        ValueError: neither the name of a score nor a `Score`.

    Example:

    >>> get("max_logit").name
    'max_logit'
    """
    return score if isinstance(score, Score) else find(score)()
