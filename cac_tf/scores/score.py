# SPDX-License-Identifier: Apache-2.0
"""What every rejection score has in common."""

import functools
import inspect
import math
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.labels import check_labels
from cac_tf.layers.open_set_decision import class_of_logits
from cac_tf.layers.open_set_decision import nearest_class
from cac_tf.scores.registry import find
from cac_tf.scores.registry import names
from cac_tf.text_digests import text_digests

# Outputs of the classifier that are small for the class of an input.
OF_CENTERS = ("distances", "gamma")


class LastLayer(typing.NamedTuple):
    """The dense layer that turns features into logits: `z = x W + b`."""

    kernel: np.ndarray  # (D, N)
    bias: np.ndarray  # (N,)


class Context(typing.NamedTuple):
    """What a score is fitted with, besides the examples."""

    class_names: tuple[str, ...]
    # None if no dense layer computes the logits from these features.
    last_layer: LastLayer | None = None

    @property
    def num_classes(self) -> int:
        """N."""
        return len(self.class_names)


class KnownBatch:
    """Examples of known classes with the classifier's outputs for them.

    `batch["features"]` gives an output by name, a float32 array of n rows.

    Args:
        labels: (n,) int64 class indices.
        inputs: (n, ...) array that the outputs were computed from, for `keys`.
        outputs: dict from output names to arrays; it has `logits` wherever a
            classifier computed them.
        num_classes: N; None: as many as logits.
    """

    def __init__(
        self,
        labels: np.ndarray,
        inputs: np.ndarray,
        outputs: Mapping[str, np.ndarray],
        num_classes: int | None = None,
    ) -> None:
        self.labels, self._inputs, self._outputs = labels, inputs, outputs
        self._num_classes = num_classes

    def __getitem__(self, name):
        return self._outputs[name]

    @functools.cached_property
    def keys(self) -> np.ndarray:
        """(n,) uint64, computed from the inputs alone: see `keys_of`."""
        return keys_of(self._inputs)

    @property
    def is_correct(self) -> np.ndarray:
        """(n,) bool: whether the classifier gives the example its class.

        By the largest logit, which is that of the nearest anchor. A network
        with centers of its own says so by `class_distances`. Where there are
        more or fewer logits than classes and no such output, every example
        counts.
        """
        if "class_distances" in self._outputs:
            return self["class_distances"].argmax(axis=-1) == self.labels
        logits = self["logits"]
        if self._num_classes not in (None, logits.shape[1]):
            return np.ones(len(self.labels), bool)
        return logits.argmax(axis=-1) == self.labels


def keys_of(inputs: np.ndarray) -> np.ndarray:
    """A random-looking number for each input, the same in every run.

    A choice of examples by these keys depends neither on the order of the
    examples nor on how they are batched.

    Args:
        inputs: (n, ...) array of numbers, or (n,) texts.

    Returns:
        (n,) uint64.

    Example:

    >>> one, two = keys_of(np.zeros((1, 3))), keys_of(np.zeros((2, 3)))
    >>> bool(one[0] == two[1])
    True
    """
    if inputs.dtype == object:
        inputs = text_digests(inputs)
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


class Score:
    """A rule that computes an unknown score, larger = more unknown.

    A subclass is added with `@register`, in a file of this folder or in another
    package. It has a `NAME`, lists the classifier outputs it reads (`READS`)
    and defines `call`, with operations that every backend and every exported
    graph supports. It holds settings, but no state.

    A score that learns from known data sets `IS_FITTED_TO_DATA` and defines
    `start`, `update` and `finish`, which returns its statistics, arrays by
    name. Each example is seen once, in a batch, and only what these methods
    keep stays in memory. The caller holds the statistics, and passes them to
    each call as keyword arguments.

    Args:
        name: name of the score; None: its `NAME`.

    Call arguments:
        one float tensor for each of `READS`, in that order: "logits",
        "distances" or "gamma", (B, N), "features", (B, D), or any other
        output that a network returns by name; and the statistics by name.
        `call` gets all of them as float32.

    Returns:
        (B,) float32 unknown scores.
    """

    NAME: str | None = None
    READS: tuple[str, ...] = ()
    IS_FITTED_TO_DATA = False
    # Whether the statistics should come from data not used for training.
    WANTS_HELD_OUT_DATA = False
    # Whether logit k must be that of class k; false of a network that gives
    # fewer than there are classes.
    NEEDS_A_LOGIT_OF_EACH_CLASS = False
    # Whether a class can be added to the statistics without a new fit: see
    # `compare`.
    ENROLLS = False
    # Correctly classified examples that a fit needs of each class.
    FEWEST_OF_A_CLASS = 0
    # Whether scores are never below 0, so that a threshold below 0 is an error.
    IS_NON_NEGATIVE = False
    # Differences between scores up to this one are rounding, on which runtimes
    # do not agree. (So are a few units in the last place of any score.)
    RESOLUTION = 0.0

    def __init__(self, *, name: str | None = None) -> None:
        self.name = name or str(self.NAME)

    def call(self, *values: Tensor, **statistics: Tensor) -> Tensor:
        """The unknown scores, for a subclass to define."""
        raise NotImplementedError

    def __call__(self, *values: Tensor, **statistics: Tensor) -> Tensor:
        return self.call(
            *(ops.cast(value, "float32") for value in values),
            **{k: ops.cast(v, "float32") for k, v in statistics.items()},
        )

    @property
    def reads_distances(self) -> bool:
        """Whether the score depends on the centers."""
        return bool(set(OF_CENTERS) & set(self.READS))

    def arguments_of(self, outputs: Outputs) -> list[Tensor]:
        """The arguments of a call, from a classifier's outputs by name."""
        return [outputs[name] for name in self.READS]

    def predicted_class(self, outputs: Outputs, **statistics: Tensor) -> Tensor:
        """(B,) int32: the predicted class of each input, before rejection.

        The class with the largest logit; for scores that read distances, and if
        there are more or fewer logits than classes, that with the closest
        center.

        Args:
            outputs: dict of tensors: `logits`, `distances`, `gamma`, ...
            **statistics: the score's statistics.
        """
        for name in self.READS:
            if name in OF_CENTERS:
                return nearest_class(outputs[name])
        return class_of_logits(outputs["logits"], outputs["distances"])

    @property
    def reads_for_prediction(self) -> tuple[str, ...]:
        """Names of the outputs that score and predicted class need."""
        return tuple(dict.fromkeys((*self.READS, "logits", "distances")))

    def of_arrays(
        self, *values: np.ndarray, **statistics: np.ndarray
    ) -> np.ndarray:
        """The score of NumPy arrays, as a NumPy array."""
        return ops.convert_to_numpy(self(*values, **statistics))

    # ---- statistics -------------------------------------------------------

    def start(self, context: Context) -> Any:
        """Returns an object of any kind, in which a fit collects data."""

    def update(self, kept: Any, batch: KnownBatch) -> None:
        """Adds a `KnownBatch` to that object."""

    def finish(self, kept: Any, context: Context) -> dict[str, ArrayLike]:
        """The statistics, from that object and a `Context`.

        Returns:
            Dict of float arrays by name, of any shape; {} without a fit.

        Raises:
            ValueError: too few examples, or the score cannot be fitted to them.
        """
        return {}

    def fit(
        self,
        labels: ArrayLike,
        *,
        class_names: Sequence[str] | None = None,
        last_layer: LastLayer | None = None,
        **outputs: ArrayLike,
    ) -> dict[str, np.ndarray]:
        """Fits the statistics to examples of known classes, all at once.

        Args:
            labels: (n,) class indices.
            class_names: names of the classes; default: the indices, as many as
                there are logits.
            last_layer: `LastLayer`, if the score reads features.
            **outputs: arrays by name: `logits`, (n, N), and whatever else
                `READS` names.

        Returns:
            Dict of float32 arrays, the keyword arguments of a call.

        Raises:
            ValueError: labels that are not class indices, or whose number
                differs from the rows of an output; an output that is not
                finite; see also `finish`.
        """
        arrays = {k: np.asarray(v, "float32") for k, v in outputs.items()}
        missing = [name for name in self.READS if name not in arrays]
        if missing:
            raise ValueError(
                f"To fit the score {self.name!r}, {', '.join(self.READS)} "
                f"must be given; missing: {', '.join(missing)}."
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
                    f"The score {self.name!r} needs finite {name}; row {row} "
                    "contains NaN or infinity."
                )
        context = Context(tuple(class_names), last_layer)
        kept = self.start(context)
        self.update(
            kept,
            KnownBatch(checked, arrays[self.READS[0]], arrays, num_classes),
        )
        return self.finished(kept, context)

    def finished(self, kept: Any, context: Context) -> dict[str, np.ndarray]:
        """`finish` as float32 arrays; ValueError where one is not finite."""
        with np.errstate(over="ignore"):
            values = {
                name: np.asarray(value, "float32")
                for name, value in self.finish(kept, context).items()
            }
        for name, value in values.items():
            if not np.isfinite(value).all():
                raise ValueError(
                    f"The score {self.name!r} cannot be fitted to these "
                    f"examples: its {name} would not be finite."
                )
        return values

    # ---- classes that are enrolled ----------------------------------------

    def require_enrolling(self) -> None:
        """Raises ValueError unless a class can be added to the statistics."""
        if not self.ENROLLS:
            able = [repr(name) for name in names() if find(name).ENROLLS]
            raise ValueError(
                f"The score {self.name!r} uses values that only trained "
                f"classes have ({', '.join(self.READS)}), so no class can be "
                "enrolled. These scores support enrolling: "
                f'{", ".join(able)}; use model.with_score("knn", (x, y)) '
                "and calibrate it."
            )

    def example_rows(
        self, *values: np.ndarray, **statistics: np.ndarray
    ) -> np.ndarray:
        """What each example adds to a class that is enrolled.

        Args:
            *values: those of a call, as arrays; n examples.
            **statistics: of the fit.

        Returns:
            (n, W) float32; W is 0 where the centers say it all.
        """
        return np.zeros((len(values[0]), 0), "float32")

    def class_rows(
        self, rows: np.ndarray, counts: np.ndarray, num_trained: int
    ) -> np.ndarray:
        """What is kept of the examples of an enrolled class: their mean.

        Args:
            rows: (m, W), of `example_rows`, or of classes that become one.
            counts: (m,) how many examples each row stands for.
            num_trained: number of classes that the score was fitted to.

        Returns:
            (r, W) float32.
        """
        mean = np.average(rows, axis=0, weights=counts)
        return np.asarray(mean[None], "float32")

    def compare(
        self,
        values: Sequence[Tensor],
        predicted: Tensor,
        classes: Sequence[Tensor],
        **statistics: Tensor,
    ) -> Tensor:
        """How far inputs are from their predicted and from enrolled classes.

        In the unit of the unknown score, which is that of an input whose class
        an enrolled one becomes.

        Args:
            values: those of a call; "distances" and "gamma" have the columns of
                the M enrolled classes at their end.
            predicted: (B,) int32, among the classes of the fit.
            classes: of each enrolled class its `class_rows`.
            **statistics: of the fit.

        Returns:
            (B, 1 + M).
        """
        (of_classes,) = values
        own = ops.take_along_axis(of_classes, predicted[:, None], axis=-1)
        enrolled = of_classes[:, of_classes.shape[-1] - len(classes) :]
        return ops.concatenate([own, enrolled], axis=-1)

    def require_statistics(self, statistics: Mapping[str, Any]) -> None:
        """Raises ValueError unless these are the statistics of a call.

        Args:
            statistics: arrays by name, or what else has their shapes.
        """
        if self.IS_FITTED_TO_DATA and not statistics:
            raise ValueError(
                f"The score {self.name!r} has not been fitted: "
                "from_classifier and with_score fit it to known data."
            )
        try:
            inspect.signature(self.call).bind(*self.READS, **statistics)
        except TypeError as error:
            raise ValueError(
                f"These are not the statistics of the score {self.name!r}: "
                f"{error}."
            ) from error

    # ---- settings ---------------------------------------------------------

    def get_config(self) -> Config:
        """The arguments of the constructor, as JSON holds them."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """The score with these settings."""
        return cls(**config)


def get(score: str | Score) -> Score:
    """A `Score` from its name, or the object itself.

    Raises:
        ValueError: neither the name of a score nor a `Score`.

    Example:

    >>> get("max_logit").name
    'max_logit'
    """
    return score if isinstance(score, Score) else find(score)()
