# SPDX-License-Identifier: Apache-2.0
"""How an open-set classifier is made of a trained one and known data."""

import itertools
from collections.abc import Iterator

import keras
import numpy as np

from cac_tf import scores as score_rules
from cac_tf.hyperparameters import SCORE_OF_FEATURES
from cac_tf.hyperparameters import SCORE_OF_LOGITS
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.layers.class_distances import ClassDistances
from cac_tf.layers.class_distances import starting_centers
from cac_tf.models import known_data
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.backbone_checks import check_logits
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import named_tensors
from cac_tf.models.classifier_ends import ending_in_logits
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.models.copying import copied
from cac_tf.models.features import model_like
from cac_tf.models.features import one_or_all
from cac_tf.models.input_checks import first_batch
from cac_tf.models.inputs import check_takes_one_array
from cac_tf.models.inputs import dtype_taken_by
from cac_tf.models.network import Network
from cac_tf.models.prediction import Predictor
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.score import OF_CENTERS
from cac_tf.scores.score import Context

_OF_ESTIMATORS = (
    " (With scikit-learn: cac_tf.sklearn.OpenSetClassifier is an estimator "
    "that trains a network and rejects unknown inputs.)"
)
# Of the known validation inputs, so many are accepted.
_TRUE_POSITIVE_RATE = 0.95


def from_classifier(
    cls,
    classifier,
    data,
    *,
    class_names,
    score,
    validation_data,
    score_data,
    centers,
    magnitude,
    features_layer,
    tta,
    copy,
    batch_size,
):
    """Implements `OpenSetClassifier.from_classifier`; see there.

    Args:
        cls: `OpenSetClassifier` or a subclass.
        data: pair of inputs, or `ComputedOutputs`, and labels, the latter None
            for a data set.
        (The others are those of the method.)
    """
    if not isinstance(classifier, keras.Model):
        is_estimator = hasattr(classifier, "get_params")
        raise ValueError(
            "The classifier must be a Keras model; got "
            f"{type(classifier).__name__}." + _OF_ESTIMATORS * is_estimator
        )
    check_takes_one_array(classifier, "The classifier")
    if class_names is not None:
        class_names = check_class_names(class_names, reserved=UNKNOWN_NAME)
    shape, data = _build(classifier, data)
    classifier = ending_in_logits(
        classifier, None if class_names is None else len(class_names)
    )
    made = copied(classifier) if copy else None
    network = Network(made or classifier, features_layer, tta, shape)
    width = _number_of_classes(network)
    if class_names is None:
        class_names = [str(index) for index in range(width)]
    takes_centers = centers is not None and not isinstance(centers, str)
    if not takes_centers:
        check_logits(network, len(class_names), width)
    score = default_score(network) if score is None else score
    score = score_rules.get(score)
    require_outputs_for(score, network, len(class_names))
    for part, _ in (data, _pair(validation_data)):
        if isinstance(part, ComputedOutputs):
            part.check(network, score)
    context = Context(tuple(class_names), network.last_layer)
    of_score = score_data
    if of_score is None and score.WANTS_HELD_OUT_DATA:
        of_score = validation_data
    reads_centers = score.IS_FITTED_TO_DATA and score.reads_distances
    is_one_pass = of_score is None and not reads_centers
    for inputs, _ in _read_twice(data, validation_data, of_score, is_one_pass):
        if isinstance(inputs, Iterator):
            raise ValueError(
                f"The score {score.name!r} needs a second pass over the "
                "data, but an iterator allows only one: pass arrays or a data "
                "set."
            )
    predictor = Predictor(network, network.inputs_taken)
    found = learn(
        predictor, data, context, [score] if is_one_pass else [], batch_size
    )
    if centers is None:
        start = _centers_at_start(network, len(class_names), magnitude)
        centers = found.means.centers(otherwise=start)
    elif not takes_centers:
        if centers != "anchors":
            raise ValueError(
                'centers must be None (class means), "anchors" or an array; '
                f"got {centers!r}."
            )
        centers = magnitude
    of_classifier = {
        "centers": centers,
        "features_layer": features_layer,
        "input_shape": shape,
        "is_shared": made is None,
    }
    statistics, problems = found.statistics, found.problems
    if not is_one_pass:
        # A score may read the distances to the centers.
        scored = cls(network.classifier, class_names, **of_classifier)
        inputs, y = data if of_score is None else _pair(of_score)
        statistics, problems = scored.fit_scores([score], inputs, y, batch_size)
    if problems:
        raise problems[score.name]
    model = cls(
        network.classifier,
        class_names,
        score,
        **of_classifier,
        statistics=statistics[score.name],
        tta=tta,
    )
    if validation_data is not None:
        known, y = _pair(validation_data)
        model.calibrate(known, y, true_positive_rate=_TRUE_POSITIVE_RATE)
    return model


def on_backbone(backbone, head):
    """A classifier of the raw inputs of a network.

    Args:
        backbone: Keras model, (B, ...) -> (B, E), with an `Input`.
        head: Keras model of its outputs, with the outputs of a classifier.

    Returns:
        Keras model with the outputs of `head`, whose layers it shares.
    """
    if not has_graph(backbone):
        raise ValueError(
            "The backbone must be a functional or sequential Keras model with "
            f"an Input; got {type(backbone).__name__}, whose layers are "
            "connected by code of its own."
        )
    # (With names of their own: both may have the same one.)
    features = model_like(
        backbone, one_or_all(backbone.outputs), name="backbone"
    )
    if has_graph(head):
        named = named_tensors(head)
        outputs = named if len(named) > 1 else named["logits"]
        head = model_like(head, outputs, name="head")
    outputs = head(features(one_or_all(features.inputs)))
    return model_like(features, outputs, name="classifier")


def require_outputs_for(score, network, num_classes):
    """Raises ValueError unless a network gives all that a score reads."""
    for name in score.READS:
        if name not in OF_CENTERS:
            network.require_output(name, f"The score {score.name!r}")
    if score.NEEDS_A_LOGIT_OF_EACH_CLASS and network.width != num_classes:
        raise ValueError(
            f"The score {score.name!r} needs one logit per class; the "
            f"classifier returns {network.width} for {num_classes} classes."
        )


def learn(predictor, data, context, scores, batch_size):
    """`known_data.Learnt` of known data.

    Args:
        predictor: `Predictor`.
        data: pair of inputs and labels.
        context: `Context`.
        scores: those to fit.
        batch_size: for arrays.
    """
    reads = Fitting(scores, context).reads
    if "class_distances" in predictor.names:
        reads = (*reads, "class_distances")
    # Images as they are, without test-time augmentation: the outputs with it
    # are compared with these statistics.
    batches = predictor.batches(*data, batch_size, reads, single_view=True)
    return known_data.learn(batches, context, scores)


def _pair(data):
    return data if isinstance(data, tuple) else (data, None)


def _read_twice(data, validation_data, of_score, is_one_pass):
    """The pairs of inputs and labels that are read more than once."""
    if of_score is None:
        return [] if is_one_pass else [data]
    return [_pair(of_score)] if of_score is validation_data else []


def _build(classifier, data):
    """Builds a classifier that learns its input's shape from data.

    Args:
        classifier: Keras model.
        data: pair of inputs and labels.

    Returns:
        The shape of one raw input, None where the classifier knows it; and the
        data, still with the batch that was looked at.
    """
    inputs, y = data
    if getattr(classifier, "inputs", None):
        return None, data
    if isinstance(inputs, ComputedOutputs):
        raise ValueError(
            "To use precomputed outputs, the classifier must know the shape "
            "of its inputs: build it with keras.Input."
        )
    looked_at = inputs
    if isinstance(inputs, Iterator):
        batches = list(itertools.islice(inputs, 1))
        looked_at = iter(batches)
        inputs = itertools.chain(batches, inputs)
    shape = first_batch(looked_at).shape[1:]
    if not classifier.built:
        classifier(keras.Input(shape, dtype=dtype_taken_by(classifier)))
    return shape, (inputs, y)


def _number_of_classes(network):
    if network.width_of_class_distances is not None:
        return network.width_of_class_distances
    return network.width


def _centers_at_start(network, num_classes, magnitude):
    """The centers of a class whose mean is not known."""
    for layer in network.classifier.layers:
        if isinstance(layer, ClassDistances):
            return np.asarray(keras.ops.convert_to_numpy(layer.centers))
    return starting_centers(num_classes, network.width, magnitude)


def default_score(network):
    """Name of a score that rejects whatever is far from all known inputs.

    Args:
        network: `Network`.
    """
    # A single feature has no residual.
    has_several = (network.width_of_features or 1) > 1
    return SCORE_OF_FEATURES if has_several else SCORE_OF_LOGITS
