# SPDX-License-Identifier: Apache-2.0
"""A trained classifier's outputs, scores and decisions for inputs."""

import typing

import keras
import numpy as np

from cac_tf.decision import rule
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models import input_checks
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.models.raw_inputs import RawInputs

# What must be finite wherever it is requested, and its name in messages.
_CHECKED = {
    "logits": "Logits",
    # Squares of finite logits may overflow.
    "distances": "Distances",
    "features": "Features",
    "unknown_score": "Unknown scores",
}


class OpenSetScores(typing.NamedTuple):
    """A model's outputs that need no threshold; n inputs, N classes."""

    logits: np.ndarray  # (n, D) float32
    distances: np.ndarray  # (n, N) float32, to the class centers
    gamma: np.ndarray  # (n, N) float32 rejection scores
    unknown_score: np.ndarray  # (n,) float32, larger = more unknown
    predicted_class_id: np.ndarray  # (n,) int32 in 0...N-1


class OpenSetPrediction(typing.NamedTuple):
    """Decisions of `OpenSetClassifier.predict_open_set`, for n inputs."""

    class_id: np.ndarray  # (n,) int32 in 0...N-1, or -1 for unknown
    label: np.ndarray  # (n,) class name, or "unknown"
    is_unknown: np.ndarray  # (n,) bool
    unknown_score: np.ndarray  # (n,) float32
    p_value: np.ndarray  # (n,) float32 in (0, 1], small = unusual
    predicted_class_id: np.ndarray  # (n,) int32, also where rejected
    gamma: np.ndarray  # (n, N) float32
    distances: np.ndarray  # (n, N) float32


class _Inference(keras.Model):
    """The way from inputs to some of the outputs, as a separate model.

    It provides `predict_on_batch`, compiled by every backend.
    """

    def __init__(self, owner, names, single_view):
        super().__init__(name="inference", dtype="float32")
        self.owner = owner
        self._names, self._single_view = names, single_view
        self.built = True

    def call(self, inputs):
        return self.owner.outputs_of(
            inputs, self._names, single_view=self._single_view
        )


def _on_tensorflow(owner, names, single_view):
    """The same as one graph, without what Keras does around each batch."""
    import tensorflow as tf

    @tf.function(reduce_retracing=True, autograph=False)
    def outputs_of(inputs):
        return owner.outputs_of(inputs, names, single_view=single_view)

    graphs = {}

    def outputs_of_arrays(inputs):
        kind = (inputs.shape[1:], inputs.dtype)
        if kind not in graphs:
            # For batches of every size; with a second size of images, one for
            # images of every size.
            spec = tf.TensorSpec((None, *kind[0]), kind[1])
            graphs[kind] = outputs_of.get_concrete_function(spec)
        outputs = graphs[kind](tf.constant(inputs))
        return {name: value.numpy() for name, value in outputs.items()}

    return outputs_of_arrays


def _saying_the_shape(function):
    """The same function; its errors name the shape of the inputs.

    Where a network's code is its own, only the backend finds that inputs of
    this shape do not fit.
    """
    errors = (ValueError, TypeError)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        errors = (*errors, tf.errors.InvalidArgumentError)

    def outputs_of_arrays(inputs):
        try:
            return function(inputs)
        except errors as error:
            lines = [one.strip() for one in str(error).splitlines()]
            line = next(filter(None, lines), "")
            raise ValueError(
                "The model cannot be applied to inputs of shape "
                f"{inputs.shape[1:]} ({inputs.dtype}): "
                f"{type(error).__name__}: {line}"
            ) from error

    return outputs_of_arrays


class Predictor:
    """Outputs for inputs, batch by batch, by compiled functions.

    Args:
        owner: model with the methods `outputs_of(inputs, names, single_view)`
            and `completed(outputs)`, and the property `names_of_outputs`.
        kind: `InputKind` of what it takes.
        always: names of outputs that are always returned and checked, so that
            one compiled function serves more calls.
    """

    def __init__(self, owner, kind, always=("logits",)):
        self._owner, self._kind, self._always = owner, kind, always
        self._compiled = {}

    @property
    def names(self):
        """Names of the outputs of the owner."""
        return self._owner.names_of_outputs

    def _inference(self, names, single_view):
        """A function from an array of inputs to a dict of arrays."""
        kind = (names, single_view)
        if kind not in self._compiled:
            if keras.backend.backend() == "tensorflow":
                function = _on_tensorflow(self._owner, names, single_view)
            else:
                function = _Inference(self._owner, names, single_view)
                function = function.predict_on_batch
            self._compiled[kind] = _saying_the_shape(function)
        return self._compiled[kind]

    def batches(self, x, y, batch_size, names, single_view=False):
        """Yields outputs by name, labels or None, inputs, and their position.

        In place of inputs there may be `ComputedOutputs`, which then stand for
        the inputs as well.

        Raises:
            ValueError: inputs of another shape, or an input or output that
                is not finite; the message names its position.
        """
        names = tuple(sorted({*self._always, *names}))
        if isinstance(x, ComputedOutputs):
            yield from self._computed(x, y, names)
            return
        start = 0
        raw_inputs = RawInputs(self._kind)
        inference = self._inference(names, single_view)
        for inputs, labels, where in input_checks.iterate_batches(
            x, y, batch_size
        ):
            if len(inputs) == 0:
                continue
            place = where or (f"batch starting at {start}, " if start else "")
            inputs = raw_inputs.check(inputs, place)
            outputs = {
                name: np.asarray(value)
                for name, value in inference(inputs).items()
            }
            _check(outputs, place)
            start += len(inputs)
            yield outputs, labels, inputs, place
        raw_inputs.finish()

    def _computed(self, computed, y, names):
        labels = None if y is None else np.asarray(y)
        if labels is not None and len(labels) != len(computed):
            raise ValueError(f"{len(labels)} labels for {len(computed)} rows.")
        for tensors, rows in computed.batches():
            found = self._owner.completed(tensors)
            outputs = {
                name: keras.ops.convert_to_numpy(found[name]) for name in names
            }
            place = f"row {rows.start} on, " if rows.start else ""
            _check(outputs, place)
            yield (
                outputs,
                None if labels is None else labels[rows],
                outputs["logits"],
                place,
            )


def _check(outputs, place):
    for name, what in _CHECKED.items():
        if name in outputs:
            input_checks.check_finite(outputs[name], what, place)


def scores_of(batches):
    """`OpenSetScores` of an iterator of outputs.

    Raises:
        ValueError: there are no inputs.
    """
    parts = [
        OpenSetScores(*(outputs[n] for n in OpenSetScores._fields))
        for outputs, *_ in batches
    ]
    if not parts:
        raise ValueError("There are no inputs to score.")
    return OpenSetScores(*map(np.concatenate, zip(*parts, strict=True)))


def decisions_of(scores, threshold, class_names, p_value):
    """`OpenSetPrediction` of `OpenSetScores`.

    Args:
        scores: `OpenSetScores`.
        threshold: float32 array, of one number or of one for each class.
        class_names: N names.
        p_value: (n,) p-values of the scores.
    """
    predicted = scores.predicted_class_id
    of_rows = rule.threshold_of_rows(threshold, predicted)
    class_id = rule.decide(scores.unknown_score, predicted, of_rows)
    # UNKNOWN is -1: the last name.
    names = np.array([*class_names, UNKNOWN_NAME])
    return OpenSetPrediction(
        class_id=class_id,
        label=names[class_id],
        is_unknown=class_id == UNKNOWN,
        unknown_score=scores.unknown_score,
        p_value=p_value,
        predicted_class_id=predicted,
        gamma=scores.gamma,
        distances=scores.distances,
    )
