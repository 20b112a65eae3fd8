# SPDX-License-Identifier: Apache-2.0
"""What every rejection score has in common."""

import hashlib
import typing

import keras
import numpy as np
from keras import ops

from cac_tf.layers.open_set_decision import nearest_class

# Outputs of the classifier that are small for the class of an input.
_OF_CENTRES = ("distances", "gamma")


class LastLayer(typing.NamedTuple):
    """The dense layer that makes logits of features: `z = x W + b`."""

    kernel: np.ndarray  # (D, N)
    bias: np.ndarray  # (N,)


class Known(typing.NamedTuple):
    """What a score is fitted with, besides the examples."""

    class_names: tuple
    # None where the features are not what a dense layer makes the logits of.
    last_layer: LastLayer | None = None


class KnownBatch(typing.NamedTuple):
    """Examples of known classes with what the classifier says of them.

    What no score needs is None.
    """

    labels: np.ndarray  # (n,) int64
    keys: np.ndarray  # (n,) uint64, of the inputs alone: see `keys_of`
    logits: np.ndarray | None = None  # (n, N) float32
    distances: np.ndarray | None = None  # (n, N) float32
    gamma: np.ndarray | None = None  # (n, N) float32
    features: np.ndarray | None = None  # (n, D) float32

    @property
    def is_correct(self):
        """(n,) bool: whether the largest logit is that of the own class."""
        return self.logits.argmax(axis=-1) == self.labels


def keys_of(inputs):
    """A number for each input that looks random, the same in every run.

    A choice of examples by their keys depends neither on their order nor on
    the batches in which they come.

    Args:
        inputs: (n, ...) array.

    Returns:
        (n,) uint64.

    Example:

    >>> one, two = keys_of(np.zeros((1, 3))), keys_of(np.zeros((2, 3)))
    >>> bool(one[0] == two[1])
    True
    """
    digests = [
        hashlib.blake2b(np.ascontiguousarray(row), digest_size=8).digest()
        for row in np.asarray(inputs)
    ]
    return np.frombuffer(b"".join(digests), "uint64")


class Score(keras.layers.Layer):
    """A rule that gives each input an unknown score, larger = more unknown.

    A file in this folder that defines a subclass with a `NAME` is a score;
    nothing else needs to know of it. The subclass says which outputs of the
    classifier it reads (`NEEDS`) and defines `call`, of operations that every
    backend and exported graphs have. One that learns from known training data
    sets `IS_FITTED_TO_DATA` and defines `start_fit`, `add_batch` and
    `finish_fit`: the examples go by once, in batches, and only what these
    keep of them stays in memory.

    Call arguments:
        one for each of `NEEDS`, in that order: "logits", "distances" or
        "gamma", (B, N), or "features", (B, D): float tensors.

    Returns:
        (B,) float32 unknown scores.
    """

    NAME = None
    NEEDS = ()
    IS_FITTED_TO_DATA = False
    # Whether the statistics should come from data that was not trained on:
    # `fit_centres` takes training data, the command line validation data.
    WANTS_HELD_OUT_DATA = False
    # Whether scores are never below 0, so that a threshold below 0 is an error.
    IS_NON_NEGATIVE = False

    def __init__(self, **kwargs):
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        kwargs["name"] = kwargs.get("name") or self.NAME
        super().__init__(**kwargs)
        # Past Keras' tracking, which has them as weights.
        object.__setattr__(self, "_statistics", {})
        # How often the statistics got other variables: functions that were
        # compiled before hold earlier ones.
        object.__setattr__(self, "layout", 0)

    @property
    def reads_distances(self):
        """Whether the centres have a part in the score."""
        return bool(set(_OF_CENTRES) & set(self.NEEDS))

    @property
    def reads_features(self):
        """Whether the backbone must give its features beside the logits."""
        return "features" in self.NEEDS

    def arguments_of(self, outputs):
        """What a call takes, out of a classifier's outputs by name."""
        return [outputs[name] for name in self.NEEDS]

    def nearest_class(self, outputs):
        """(B,) int32: the class that an input has if it is not rejected.

        That with the largest logit, or, for scores of distances, with the
        closest centre.

        Args:
            outputs: dict of tensors: `logits`, `distances`, `gamma`, ...
        """
        for name in self.NEEDS:
            if name in _OF_CENTRES:
                return nearest_class(outputs[name])
        return nearest_class(-outputs["logits"])

    def of_arrays(self, *values):
        """The score of NumPy arrays, as a NumPy array."""
        return ops.convert_to_numpy(self(*values))

    def copy(self):
        """A score of its own with the same settings and statistics."""
        other = type(self).from_config(self.get_config())
        other.build_from_config(self.get_build_config())
        other.set_weights(self.get_weights())
        return other

    # ---- statistics -------------------------------------------------------

    def start_fit(self, num_classes):
        """What a fit keeps of the examples that went by; any object."""

    def add_batch(self, kept, batch):
        """Takes a `KnownBatch` into what is kept."""

    def finish_fit(self, kept, known):
        """Makes statistics of what was kept, with a `Known`.

        Raises:
            ValueError: too few examples, or others that it cannot be fitted
                to.
        """

    def fit(self, labels, *, class_names=None, last_layer=None, **outputs):
        """Fits the score to examples of known classes, all at once.

        `OpenSetClassifier.fit_centres` and `fit_score` do it in batches. (A
        classifier's theta does not follow a fit of its score by this method.)

        Args:
            labels: (n,) class indices.
            class_names: for messages; default: the indices.
            last_layer: `LastLayer`, where the score reads features.
            **outputs: arrays by name: `logits`, (n, N), and what else `NEEDS`
                names.

        Raises:
            ValueError: as `finish_fit`.
        """
        labels = np.asarray(labels, "int64")
        outputs = {k: np.asarray(v, "float32") for k, v in outputs.items()}
        missing = [name for name in self.NEEDS if name not in outputs]
        if missing:
            raise ValueError(
                f"The score {self.name!r} is fitted with "
                f"{', '.join(self.NEEDS)}; {', '.join(missing)} is missing."
            )
        if class_names is None:
            num_classes = labels.max(initial=0) + 1
            if "logits" in outputs:
                num_classes = outputs["logits"].shape[-1]
            class_names = tuple(map(str, range(num_classes)))
        kept = self.start_fit(len(class_names))
        keys = keys_of(outputs[self.NEEDS[0]])
        self.add_batch(kept, KnownBatch(labels, keys, **outputs))
        self.finish_fit(kept, Known(class_names, last_layer))

    @property
    def is_fitted(self):
        """Whether the score can be used."""
        if not self.IS_FITTED_TO_DATA:
            return True
        return bool(self._statistics) and bool(
            ops.convert_to_numpy(self._statistics["is_fitted"])
        )

    def reset(self):
        """Forgets what was learnt."""
        if not (self.IS_FITTED_TO_DATA and self.is_fitted):
            return
        for name, value in self._statistics.items():
            if name == "is_fitted":
                value.assign(False)
            else:
                value.assign(np.full(value.shape, np.nan, "float32"))

    def statistic(self, name):
        """A statistic of the last fit, as a tensor.

        Raises:
            ValueError: the score was never fitted.
        """
        if not self._statistics:
            raise ValueError(f"The score {self.name!r} is not fitted.")
        return ops.convert_to_tensor(self._statistics[name])

    def set_statistics(self, **arrays):
        """Keeps statistics as weights, saved and exported with the model.

        Args:
            **arrays: finite float arrays by name, of any shapes.
        """
        with np.errstate(over="ignore"):
            arrays = {k: np.asarray(v, "float32") for k, v in arrays.items()}
        # All are looked at before the first one is changed.
        for name, value in arrays.items():
            if not np.isfinite(value).all():
                raise ValueError(
                    f"The score {self.name!r} cannot be fitted to these "
                    f"examples: its {name} would not be finite."
                )
        shapes = {name: value.shape for name, value in arrays.items()}
        if shapes != self._shapes:
            self._create_statistics(shapes)
        for name, value in arrays.items():
            self._statistics[name].assign(value)
        self._statistics["is_fitted"].assign(True)

    @property
    def _shapes(self):
        return {
            name: tuple(value.shape)
            for name, value in self._statistics.items()
            if name != "is_fitted"
        }

    def _create_statistics(self, shapes):
        """Weights of these shapes in place of earlier ones.

        How many examples there are is known only now, when the layer may be
        built: Keras' tracker, which locks, is opened as Keras' own layers do.
        """
        for value in self._statistics.values():
            self._untrack_variable(value)
        was_locked = self._tracker.locked
        self._tracker.unlock()
        made = {
            name: self.add_weight(
                name=name,
                shape=shape,
                initializer=keras.initializers.Constant(np.nan),
                dtype="float32",
                trainable=False,
                autocast=False,
            )
            for name, shape in shapes.items()
        }
        made["is_fitted"] = self.add_weight(
            name="is_fitted",
            shape=(),
            initializer="zeros",
            dtype="bool",
            trainable=False,
        )
        object.__setattr__(self, "_statistics", made)
        object.__setattr__(self, "layout", self.layout + 1)
        if was_locked:
            self._tracker.lock()

    def get_build_config(self):
        # Lists: what JSON gives back.
        return {"statistics": {k: list(v) for k, v in self._shapes.items()}}

    def build_from_config(self, config):
        shapes = config.get("statistics")
        if shapes:
            self._create_statistics({k: tuple(v) for k, v in shapes.items()})

    def build(self, *input_shapes):
        """Nothing: statistics come with a fit."""
        self.built = True

    def compute_output_shape(self, *input_shapes):
        return input_shapes[0][:-1]
