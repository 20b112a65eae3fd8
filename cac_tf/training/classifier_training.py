# SPDX-License-Identifier: Apache-2.0
"""The training of a classifier by losses of several of its outputs.

What plain Keras does not do, and the methods of this package need: several
losses on one label, targets that arise inside the network, negatives, batches
that replicas share unevenly, and loss scaling for a half-precision network
inside a float32 classifier.
"""

import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from cac_tf import keras_private
from cac_tf.annotations import Outputs
from cac_tf.annotations import Tensor
from cac_tf.layers.replicas import replica_context
from cac_tf.losses.loss import is_known
from cac_tf.losses.loss import only_rows
from cac_tf.losses.loss import select
from cac_tf.losses.loss import weights_of_counted
from cac_tf.models.backbone_checks import by_name


class StopsAtNonFiniteLoss(keras.Model):
    """A training whose `fit` ends with an error when its loss is not finite.

    `IF_NOT_FINITE` is the likely cause and what to change, for the message.
    """

    IF_NOT_FINITE = ""

    def fit(self, *args: Any, callbacks: Any = (), **kwargs: Any) -> Any:
        """Like `keras.Model.fit`.

        Raises:
            FloatingPointError: the loss became NaN or infinite.
        """
        callbacks = [_Stop(self.IF_NOT_FINITE), *(callbacks or ())]
        return super().fit(*args, callbacks=callbacks, **kwargs)


class Term(typing.NamedTuple):
    """A loss, and the outputs that it reads."""

    loss: keras.losses.Loss
    reads: tuple[str, ...]

    @property
    def takes_negatives(self) -> bool:
        """Whether rows labelled -1 count in it."""
        return getattr(self.loss, "TAKES_NEGATIVES", False)


class ClassifierTraining(
    keras_private.BuiltFromOneReplica, StopsAtNonFiniteLoss
):
    """Trains a classifier, without copying it.

    Rows labeled -1, the negatives, count only in losses that set
    `TAKES_NEGATIVES`.

    Args:
        classifier: Keras model, (B, ...) -> (B, N) logits, or a dict with
            `logits` and whatever the losses read.
        **kwargs: passed to `keras.Model`.

    Example:

    >>> import numpy as np, cac_tf
    >>> classifier = keras.Sequential([
    ...     keras.Input([2]), keras.layers.Dense(2)])
    >>> training = ClassifierTraining(classifier)
    >>> training.compile("sgd", cac_tf.losses.CACLoss())
    >>> x, y = np.float32([[0, 1], [1, 0]]), np.array([0, 1])
    >>> history = training.fit(x, y, epochs=2, verbose=0)
    >>> sorted(history.history)
    ['loss']
    """

    IF_NOT_FINITE = (
        "If the labels are whole numbers in 0...N-1 and the inputs are "
        "finite, training has diverged: try a lower learning rate."
    )

    def __init__(self, classifier: keras.Model, **kwargs: Any) -> None:
        # Not the global policy: it would cast raw pixels to half precision.
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        super().__init__(**{"name": "classifier_training", **kwargs})
        self.classifier = classifier
        self._terms: list[Term] = []
        self._watched: list[keras.metrics.Metric] = []
        self._loss_so_far: keras.metrics.Mean | None = None

    def build(self, input_shape: Any) -> None:
        """Built with the classifier, by a symbolic call of it."""
        if not self.classifier.built:
            inputs = keras.Input(tuple(input_shape[1:]))
            self.classifier(inputs)
        self.built = True

    def call(self, inputs: Tensor, training: bool = False) -> Outputs:
        outputs = self.classifier(inputs, training=training)
        outputs = dict(by_name(outputs, self.classifier.name))
        outputs["logits"] = ops.cast(outputs["logits"], "float32")
        return outputs

    def compile(
        self,
        optimizer: Any,
        loss: Any,
        metrics: Sequence[keras.metrics.Metric] = (),
        **kwargs: Any,
    ) -> None:
        """Like `keras.Model.compile`.

        Args:
            optimizer: as in Keras.
            loss: a loss from `cac_tf.losses`; a dict from an output's name to a
                loss; or a list of these, which are summed.
            metrics: metrics from `cac_tf.metrics`.
            **kwargs: as in Keras.
        """
        optimizer = keras.optimizers.get(optimizer)
        is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        dtypes = keras_private.compute_dtypes(self.classifier)
        if "float16" in dtypes and not is_scaled:
            # Keras looks only at the policy of the outermost model.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        self._terms = _terms(loss)
        self._watched = list(metrics)
        # Weights each batch by the number of inputs that count; Keras' own
        # tracker weights it by all inputs.
        self._loss_so_far = keras.metrics.Mean(name="loss")
        super().compile(optimizer=optimizer, **kwargs)

    @property
    def metrics(self) -> list[Any]:
        if self._loss_so_far is None:
            return []
        return [self._loss_so_far, *self._watched]

    @property
    def takes_negatives(self) -> bool:
        """Whether a loss trains on inputs labeled -1."""
        return any(term.takes_negatives for term in self._terms)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """The total loss of the outputs of a batch.

        Args:
            x: not used.
            y: (B,) or (B, 1) labels.
            y_pred: dict of outputs, as a call returns it.
            sample_weight: None or (B,).
            training: whether it is a training step.
        """
        assert self._loss_so_far is not None
        parts = losses_of(self._terms, y, y_pred, sample_weight, training)
        # Of regularizers; Keras scales them under tf.distribute.
        of_weights = super().compute_loss() if self.losses else 0.0
        sum_of_parts = sum(one for one, _ in parts)
        takes_all = training and self.takes_negatives
        self._loss_so_far.update_state(
            _unscaled(sum_of_parts + of_weights),
            _number_of_rows(y, only_known=not takes_all),
        )
        loss = part_of_whole(parts) if training else sum_of_parts
        return loss + of_weights

    def compute_metrics(
        self,
        x: Any,
        y: Any,
        y_pred: Outputs,
        sample_weight: Tensor | None = None,
    ) -> dict[str, Any]:
        for metric in self._watched:
            reads = getattr(metric, "READS", ("logits",))
            metric.update_state(y, select(y_pred, reads))
        return self.get_metrics_result()


class _Stop(keras.callbacks.Callback):
    """Ends training with an error when the loss is NaN or infinite."""

    def __init__(self, advice: str) -> None:
        super().__init__()
        self._advice = advice
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is not None and not np.isfinite(float(loss)):
            raise FloatingPointError(
                f"The loss of {self.model.name} became {float(loss)} in epoch "
                f"{self._epoch + 1}, batch {batch}. {self._advice} The "
                "weights are no longer usable."
            )


def _terms(loss):
    if isinstance(loss, (list, tuple)):
        return [term for one in loss for term in _terms(one)]
    if isinstance(loss, Mapping):
        return [Term(one, (name,)) for name, one in loss.items()]
    return [Term(loss, tuple(getattr(loss, "READS", ("logits",))))]


def losses_of(
    terms: Sequence[Term],
    labels: Tensor,
    outputs: Outputs,
    sample_weight: Tensor | None,
    training: bool,
) -> list[tuple[Any, Any]]:
    """The losses of a batch, each with the rows that it is a mean over.

    Args:
        terms: list of `Term`.
        labels: (B,) or (B, 1).
        outputs: dict of tensors by name.
        sample_weight: None or (B,).
        training: whether it is a training step.

    Returns:
        List of pairs: a scalar, and the number of rows as a float32 scalar,
        or None where the loss is a sum.
    """
    takes_negatives = training and any(t.takes_negatives for t in terms)
    pairs = []
    for term in terms:
        reduction = getattr(term.loss, "reduction", "sum_over_batch_size")
        own_labels, weights = labels, sample_weight
        own_outputs = {name: outputs[name] for name in term.reads}
        rows = ops.cast(ops.shape(labels)[0], "float32")
        leaves_out = not training or (
            takes_negatives and not term.takes_negatives
        )
        if leaves_out:
            is_counted = is_known(labels)
            own_labels, own_outputs = only_rows(
                ops.reshape(is_counted, ops.shape(labels)), labels, own_outputs
            )
            weights = weights_of_counted(is_counted, sample_weight, reduction)
            rows = _number_of_rows(labels)
        if reduction == "mean_with_sample_weight" and weights is not None:
            rows = ops.sum(ops.cast(weights, "float32"))
        value = term.loss(own_labels, select(own_outputs, term.reads), weights)
        if leaves_out:
            value = ops.where(ops.any(is_counted), value, 0.0)
        pairs.append((value, None if reduction == "sum" else rows))
    return pairs


def part_of_whole(pairs: Sequence[tuple[Any, Any]]) -> Any:
    """What a replica adds to the loss of the batch of all replicas.

    Under tf.distribute, Keras weighs replicas alike, also where one has more
    rows than another. Here the mean over the whole batch is meant.

    Args:
        pairs: of `losses_of`.
    """
    replicas = replica_context()
    if replicas is None:
        return sum((value for value, _ in pairs), 0.0)
    import tensorflow as tf

    total = 0.0
    for value, rows in pairs:
        if rows is not None:
            rows = ops.stop_gradient(rows)
            all_rows = replicas.all_reduce(tf.distribute.ReduceOp.SUM, rows)
            value = value * ops.divide_no_nan(
                rows * replicas.num_replicas_in_sync, all_rows
            )
        total = total + value
    return total


def _unscaled(loss):
    """Undoes the division by the number of replicas under tf.distribute."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return loss * tf.distribute.get_strategy().num_replicas_in_sync
    return loss


def _number_of_rows(labels, only_known=True):
    """Number of rows, by default of known classes, a float32 scalar."""
    is_counted = is_known(labels)
    counted = is_counted if only_known else ops.ones_like(is_counted)
    return ops.sum(ops.cast(counted, "float32"))
