# SPDX-License-Identifier: Apache-2.0
"""The losses and metrics given to `compile`, with the outputs they read."""

import inspect
import typing

import keras
from keras import ops

from cac_tf.layers.replicas import replica_context
from cac_tf.losses import loss as output_losses
from cac_tf.metrics.streaming import LargestLogitAccuracy
from cac_tf.metrics.streaming import NearestCenterAccuracy


class Term(typing.NamedTuple):
    """A loss, what it reads, and its weight in the total."""

    loss: keras.losses.Loss
    reads: tuple
    weight: float

    @property
    def takes_negatives(self):
        """Whether rows labelled -1 count in it."""
        return getattr(self.loss, "TAKES_NEGATIVES", False)

    def value(self, labels, outputs, sample_weight):
        """The loss of a batch, weighted."""
        if hasattr(self.loss, "of_outputs"):
            names = _read_of(outputs, self.loss, self.reads)
            read = {name: outputs[name] for name in names}
            value = self.loss.of_outputs(labels, read, sample_weight)
        else:
            read = output_losses.select(outputs, self.reads)
            value = self.loss(labels, read, sample_weight)
        return value if self.weight == 1.0 else self.weight * value


class Watched(typing.NamedTuple):
    """A metric, what it reads, and whether sample weights count in it."""

    metric: keras.metrics.Metric
    reads: tuple
    is_weighted: bool

    def update(self, labels, outputs, sample_weight):
        """Adds a batch."""
        weights = sample_weight if self.is_weighted else None
        if not hasattr(self.metric, "READS"):
            # A stock metric knows nothing of the label -1.
            is_counted = output_losses.is_known(labels)
            weights = output_losses.weights_of_counted(
                is_counted, weights, reduction=None
            )
            labels, outputs = _only_counted(is_counted, labels, outputs)
        names = _read_of(outputs, self.metric, self.reads)
        read = output_losses.select(outputs, names)
        self.metric.update_state(labels, read, weights)


def _read_of(outputs, reader, reads):
    """Names of what a loss or metric reads, and of what it may read besides.

    A name that `compile` gave it may be of another output than its own.
    """
    is_own = tuple(reads) == tuple(getattr(reader, "READS", ()))
    besides = getattr(reader, "MAY_READ", ()) if is_own else ()
    return [*reads, *(name for name in besides if name in outputs)]


def terms(loss, loss_weights=None):
    """The losses of `compile`.

    Args:
        loss: a loss with `READS`; a dict from an output's name to a Keras
            loss or its name; or a list of these, which are summed.
        loss_weights: None, a number, or one for each of the losses.

    Returns:
        List of `Term`.

    Raises:
        ValueError: a loss that does not say what it reads, or weights that
            do not match the losses.

    Example:

    >>> stock = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> [term.reads for term in terms({"logits": stock})]
    [('logits',)]
    """
    found = [
        (given, reads)
        for part in _as_list(loss)
        for given, reads in _with_reads(part)
    ]
    if loss_weights is None:
        loss_weights = [1.0] * len(found)
    elif isinstance(loss_weights, dict):
        unknown = set(loss_weights) - {reads[0] for _, reads in found}
        if unknown:
            raise ValueError(
                f"loss_weights names {', '.join(sorted(unknown))}, but no "
                "loss does."
            )
        loss_weights = [loss_weights.get(r[0], 1.0) for _, r in found]
    loss_weights = _as_list(loss_weights)
    if len(loss_weights) != len(found):
        raise ValueError(
            f"{len(loss_weights)} loss_weights for {len(found)} losses."
        )
    return [
        Term(given, reads, float(weight))
        for (given, reads), weight in zip(found, loss_weights, strict=True)
    ]


def _with_reads(loss):
    if loss is None:
        return []
    if isinstance(loss, dict):
        return [
            (_of_output(keras.losses.get(part), name), (name,))
            for name, parts in loss.items()
            for part in _as_list(parts)
        ]
    reads = getattr(loss, "READS", ())
    if not reads:
        name = loss if isinstance(loss, str) else type(loss).__name__
        raise ValueError(
            f"The loss {name} does not say which output it reads. The first "
            "output would be the wrong one: on distances, a stock loss "
            "un-learns. Name the output, as in compile(loss={'logits': "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)}), "
            "or pass a loss of cac_tf.losses."
        )
    return [(loss, tuple(reads))]


class _OfFunction(keras.losses.Loss):
    """A function of labels and an output, one value per row, as a loss."""

    def __init__(self, function):
        # Not the function's name, which may be none of a TensorFlow scope.
        super().__init__(name="of_function")
        self._function = function

    def call(self, y_true, y_pred):
        return self._function(y_true, y_pred)


def _of_output(loss, name):
    """The loss, as a loss of this output."""
    _own_name_fits(loss, name)
    if hasattr(loss, "READS"):
        return loss
    shown = getattr(loss, "name", None) or getattr(loss, "__name__", loss)
    if name in ("distances", "gamma"):
        small = "gamma is" if name == "gamma" else "distances are"
        raise ValueError(
            f"The stock loss {shown} expects large values for the class of an "
            f"input, but {small} small there. Name 'logits' instead, or "
            "pass a loss of cac_tf.losses."
        )
    if name == "logits" and _takes_probabilities(loss):
        raise ValueError(
            f"The loss {shown} would take the logits for probabilities. Pass "
            "an object with from_logits=True, such as keras.losses."
            "SparseCategoricalCrossentropy(from_logits=True)."
        )
    return loss if isinstance(loss, keras.losses.Loss) else _OfFunction(loss)


def _own_name_fits(reader, name):
    """Raises ValueError if a loss or metric says that it reads another."""
    reads = getattr(reader, "READS", (name,))
    if tuple(reads) != (name,):
        raise ValueError(
            f"{type(reader).__name__} reads {', '.join(reads)}, not {name!r}: "
            "pass it without a name."
        )


def _takes_probabilities(loss):
    """Whether a Keras loss can take logits but is not told to."""
    if isinstance(loss, keras.losses.Loss):
        return loss.get_config().get("from_logits") is False
    try:
        parameter = inspect.signature(loss).parameters.get("from_logits")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is False


def metrics(given, weighted, score):
    """The metrics of `compile`.

    Args:
        given: a list of metrics with `READS` and of "accuracy"; or a dict
            from an output's name to Keras metrics or their names.
        weighted: the same, for metrics in which sample weights count.
        score: `Score` of the model, which decides the predicted class.

    Returns:
        List of `Watched`.

    Raises:
        ValueError: a metric that does not say what it reads, or two with the
            same name.
    """
    found = [
        Watched(metric, reads, is_weighted)
        for part, is_weighted in ((given, False), (weighted, True))
        for metric, reads in _metrics_with_reads(part, score)
    ]
    names = [watched.metric.name for watched in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Metrics must differ in their names; {', '.join(twice)} appears "
            "twice. Pass name= to one of them."
        )
    return found


def _metrics_with_reads(given, score):
    if isinstance(given, dict):
        return [
            (_metric(metric, score, name), (name,))
            for name, several in given.items()
            for metric in _as_list(several)
        ]
    found = []
    for part in [] if given is None else _as_list(given):
        if isinstance(part, (list, tuple, dict)):
            found += _metrics_with_reads(part, score)
            continue
        metric = _metric(part, score)
        reads = getattr(metric, "READS", None)
        if not reads:
            raise ValueError(
                f"The metric {getattr(part, 'name', part)!r} does not say "
                "which output it reads. Name the output, as in compile("
                "metrics={'logits': [metric]}), or pass a metric of "
                "cac_tf.metrics."
            )
        found.append((metric, tuple(reads)))
    return found


def _metric(given, score, output=None):
    if isinstance(given, str) and given in ("accuracy", "acc"):
        # Keras' own accuracy would look for the largest distance.
        by_distance = output in ("distances", "gamma") or (
            output is None and score.reads_distances
        )
        kind = NearestCenterAccuracy if by_distance else LargestLogitAccuracy
        return kind(name=given)
    metric = keras.metrics.get(given)
    if isinstance(metric, type):
        metric = metric()
    if output is not None:
        _own_name_fits(metric, output)
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(
            metric, name=getattr(metric, "__name__", None)
        )
    return metric


def read_names(found, watched):
    """Names of the outputs that losses and metrics read, and their readers.

    Args:
        found: list of `Term`.
        watched: list of `Watched`.

    Yields:
        A name, and what reads it, as the subject of a message.
    """
    for term in found:
        for name in term.reads:
            yield name, f"The loss {type(term.loss).__name__}"
    for one in watched:
        for name in one.reads:
            yield name, f"The metric {one.metric.name!r}"


def losses_of(found, labels, outputs, sample_weight, training):
    """The losses of a batch, each with the rows that it is a mean over.

    Rows labelled -1 count in training losses that take negatives, and in no
    others.

    Args:
        found: list of `Term`.
        labels: (B,) or (B, 1).
        outputs: dict of tensors by name.
        sample_weight: None or (B,).
        training: whether it is a training step.

    Returns:
        List of pairs: a scalar, and the number of rows as a float32 scalar,
        or None where the loss is a sum.
    """
    takes_negatives = training and any(t.takes_negatives for t in found)
    pairs = []
    for term in found:
        reduction = getattr(term.loss, "reduction", "sum_over_batch_size")
        leaves_out = not training or (
            takes_negatives and not term.takes_negatives
        )
        own_labels, own_outputs, weights = labels, outputs, sample_weight
        rows = ops.cast(ops.shape(labels)[0], "float32")
        if leaves_out:
            is_counted = output_losses.is_known(labels)
            own_labels, own_outputs = _only_counted(is_counted, labels, outputs)
            weights = output_losses.weights_of_counted(
                is_counted, sample_weight, reduction
            )
            rows = number_of_rows(labels)
        if reduction == "mean_with_sample_weight" and weights is not None:
            rows = ops.sum(ops.cast(weights, "float32"))
        value = term.value(own_labels, own_outputs, weights)
        if leaves_out:
            value = ops.where(ops.any(is_counted), value, 0.0)
        pairs.append((value, None if reduction == "sum" else rows))
    return pairs


def _only_counted(is_counted, labels, outputs):
    # The anchors have no rows.
    rows = {name: outputs[name] for name in outputs if name != "anchors"}
    labels, rows = keras.tree.map_structure(
        lambda values: output_losses.only_counted(is_counted, values),
        (output_losses.known_labels(labels), rows),
    )
    return labels, {**outputs, **rows}


def total_loss(*arguments):
    """The sum of `losses_of`."""
    return sum((value for value, _ in losses_of(*arguments)), 0.0)


def part_of_whole(pairs):
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


def unscaled(loss):
    """Undoes the division by the number of replicas under tf.distribute."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return loss * tf.distribute.get_strategy().num_replicas_in_sync
    return loss


def number_of_rows(labels, only_known=True):
    """Number of rows, by default of known classes, a float32 scalar."""
    is_known = output_losses.is_known(labels)
    counted = is_known if only_known else ops.ones_like(is_known)
    return ops.sum(ops.cast(counted, "float32"))


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]
