# SPDX-License-Identifier: Apache-2.0
"""What a served model can be asked, and what it answers.

All functions take rows of different clients in one batch, so a bad row never
fails a request: it comes back with `is_valid` false, rejected, and every
number in it finite (JSON has no infinity and no NaN).
"""

import typing
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from cac_tf import scores
from cac_tf.annotations import Outputs
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.decision import rule
from cac_tf.decision.p_values import PValueTable
from cac_tf.decision.p_values import p_values
from cac_tf.export.image_decoding import decode_images
from cac_tf.export.row_by_row import map_rows
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.layers.rejection_score import softmin
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.raw_inputs import BRIGHTEST
from cac_tf.models.raw_inputs import takes_encoded_images

# Stands for "infinitely far" where an answer must be finite.
LARGEST = float(np.finfo("float32").max)
# Scores that are finite wherever distances are.
_NEVER_ABOVE_DISTANCES = (scores.Gamma, scores.MinDistance)
# Features of a tf.Example that the Classify API sends.
IMAGE_FEATURE = "image/encoded"
VECTOR_FEATURE, TEXT_FEATURE = "features", "text"


class Answering(typing.NamedTuple):
    """How a served model answers, apart from its weights."""

    threshold: np.ndarray | np.floating  # float32, () or (N,), of the classes
    version: int  # echoed in every row
    max_pixels: int  # of an encoded image
    calibration: PValueTable
    # Whether distances are formed without a matrix product.
    direct: bool = False


def name_of_inputs(shape: Shape) -> str:
    """What a signature calls inputs of this shape.

    Example:

    >>> name_of_inputs((32, 32, 3)), name_of_inputs((384,))
    ('images', 'inputs')
    """
    return "images" if len(shape) == 3 else "inputs"


def scored(
    model: OpenSetClassifier,
    images: Tensor,
    answering: Answering,
    is_allowed: Tensor | None = None,
) -> dict[str, Tensor]:
    """The values that an answer is made of, from raw inputs.

    A row with a value that the model does not take, or a distance that is not
    finite, is as far from every class as float32 allows. Its other numbers
    follow from that, so nothing has to be corrected afterwards: at batch 1
    every operation counts.

    Args:
        model: `OpenSetClassifier`.
        images: (B, ...) raw inputs, of the model's type; (B,) texts.
        answering: `Answering`.
        is_allowed: None, or (B,) bool: false in rows that are not valid.

    Returns:
        Dict of (B, ...) tensors: `distances`, `gamma`, `probabilities`
        (softmin; softmax of the logits, where each class has one and the
        score reads no distances),
        `unknown_score`, `p_value`, `predicted_class_id` and `is_valid`.
    """
    import tensorflow as tf

    axes = list(range(1, images.shape.rank))
    taken = model.inputs_taken
    if taken.num_ids is not None:
        # Some devices fail on another place in the table, for all rows.
        is_id = (images >= 0) & (images < taken.num_ids)
        images = tf.where(is_id, images, 0)
        are_ids = tf.reduce_all(is_id, axis=axes)
        is_allowed = are_ids if is_allowed is None else is_allowed & are_ids
    network_outputs = model.network(images)
    logits = network_outputs["logits"]
    distances = model.distances_of(logits, answering.direct)
    # Infinity and NaN show in a sum, in one pass. (So does a sum beyond 1e38;
    # no network makes sense of such numbers.)
    total = tf.reduce_sum(distances, axis=1)
    if images.dtype.is_floating and not taken.are_pixels:
        total = tf.reduce_sum(images, axis=axes) + total
    is_valid = tf.abs(total) <= LARGEST
    if taken.are_pixels:
        # (NaN is not between anything.)
        are_pixels = (images >= 0) & (images <= BRIGHTEST)
        is_valid &= tf.reduce_all(are_pixels, axis=axes)
    if is_allowed is not None:
        is_valid &= is_allowed
    distances = tf.where(is_valid[:, tf.newaxis], distances, LARGEST)
    outputs = model.with_decision(network_outputs, distances)
    gamma = outputs["gamma"]
    score = outputs["unknown_score"]
    num_classes = distances.shape[-1]
    if type(model.score) not in _NEVER_ABOVE_DISTANCES:
        # Such a score may be infinite or NaN where distances are not.
        is_valid &= tf.abs(score) <= LARGEST
        score = tf.where(is_valid, score, LARGEST)
    if model.score.reads_distances or logits.shape[-1] < num_classes:
        probabilities = softmin(distances)
    else:
        logits = tf.where(is_valid[:, tf.newaxis], logits, 0.0)
        probabilities = ops.softmax(logits[:, :num_classes], axis=-1)
    return {
        "distances": distances,
        "gamma": gamma,
        "probabilities": probabilities,
        "unknown_score": score,
        "p_value": p_values(score, *map(tf.constant, answering.calibration)),
        "predicted_class_id": outputs["predicted_class_id"],
        "is_valid": is_valid,
    }


def answer(
    model: OpenSetClassifier,
    outputs: Outputs,
    answering: Answering,
    threshold: Tensor | None = None,
) -> dict[str, Tensor]:
    """The answer to inputs, as graph operations.

    Args:
        model: `OpenSetClassifier`.
        outputs: of `scored`.
        answering: `Answering`.
        threshold: (B,) finite thresholds in place of the model's own.

    Returns:
        Dict of tensors, all (B, ...): `class_id` (-1: unknown), `label`,
        `is_unknown`, `unknown_score`, `p_value`, `predicted_class_id`, `gamma`,
        `distances`, `probabilities`, `threshold`, `model_version`,
        `is_valid`.
    """
    import tensorflow as tf

    score, is_valid = outputs["unknown_score"], outputs["is_valid"]
    predicted = tf.where(is_valid, outputs["predicted_class_id"], UNKNOWN)
    if threshold is None:
        threshold = _threshold_of_rows(answering.threshold, predicted)
    class_id = rule.decide(score, predicted, threshold, is_valid)
    # At the position UNKNOWN + 1.
    names = tf.constant([UNKNOWN_NAME, *model.class_names])
    return {
        **outputs,
        "class_id": class_id,
        "label": tf.gather(names, class_id + 1),
        "is_unknown": class_id == UNKNOWN,
        "predicted_class_id": predicted,
        "threshold": threshold,
        "model_version": tf.fill(
            tf.shape(score), tf.constant(answering.version, tf.int64)
        ),
    }


def signatures(
    model: OpenSetClassifier, answering: Answering
) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """The functions of a served model, by the names of their signatures.

    Args:
        model: `OpenSetClassifier`.
        answering: `Answering`.

    Returns:
        Dict of name -> (function, list of `tf.TensorSpec`), the default one
        first. Only models on images with one or three channels and a known
        size have signatures that take files.
    """
    import tensorflow as tf

    shape = model.inputs_taken.fixed_shape
    name = name_of_inputs(shape)
    spec = tf.TensorSpec((None, *shape), model.inputs_taken.dtype, name=name)
    column = tf.TensorSpec((None,), tf.float32, name="threshold")
    texts = tf.TensorSpec((None,), tf.string, name="images")
    # NaN marks a row that is not valid, at no cost; whole numbers have none.
    has_nan = spec.dtype.is_floating
    marks = [] if has_nan else [tf.TensorSpec((None,), tf.bool, name="allowed")]

    # One graph of the network for all signatures, not one for each.
    @tf.function(input_signature=[spec, *marks], autograph=False)
    def network(images, is_allowed=None):
        return scored(model, images, answering, is_allowed)

    def ask(images, is_allowed=None, threshold=None):
        images = tf.cast(images, spec.dtype)
        if has_nan:
            if is_allowed is not None:
                images = _nan_where_not(is_allowed, images)
            outputs = network(images)
        else:
            if is_allowed is None:
                is_allowed = tf.fill(tf.shape(images)[:1], True)
            outputs = network(images, is_allowed)
        return answer(model, outputs, answering, threshold)

    def serving_default(images):
        return ask(_checked(images, shape))

    def uint8_images(images):
        return ask(_checked(images, shape))

    def with_threshold(images, threshold):
        images = _checked(images, shape)
        threshold = tf.ensure_shape(threshold, (None,))
        same = tf.debugging.assert_equal(
            tf.size(threshold),
            tf.shape(images)[0],
            message=f"threshold must have one number for each row of {name}",
        )
        with tf.control_dependencies([same]):
            threshold = tf.identity(threshold)
        # NaN is not >= anything.
        lowest = 0.0 if model.score.IS_NON_NEGATIVE else -LARGEST
        is_allowed = (threshold >= lowest) & (threshold <= LARGEST)
        # A threshold that is not allowed makes its row invalid, and the row
        # shows this one.
        shown = answering.threshold.flat[0]
        threshold = tf.where(is_allowed, threshold, shown)
        return ask(images, is_allowed, threshold)

    def decoded(rows, file_of=None):
        return decode_images(
            rows,
            *shape,
            answering.max_pixels,
            file_of,
            model.inputs_taken.interpolation,
        )

    def encoded_images(images):
        return ask(*decoded(_checked(images, ())))

    def classify(inputs):
        inputs = _checked(inputs, ())
        if takes_encoded_images(shape):
            wanted, (rows, is_good) = IMAGE_FEATURE, decoded(inputs, _file_of)
        elif spec.dtype == tf.string:
            wanted = TEXT_FEATURE
            rows, is_good = map_rows(_text_of, inputs, (), spec.dtype)
        else:
            wanted = VECTOR_FEATURE
            rows, is_good = _vectors_of(inputs, shape, spec.dtype)
        said = _require_feature(inputs, wanted, is_good)
        with tf.control_dependencies([said]):
            answers = ask(rows, is_good)
        return _classification(answers, model.class_names)

    offered: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "serving_default": (serving_default, [spec])
    }
    if len(shape) == 3:
        as_bytes = tf.TensorSpec(spec.shape, tf.uint8, name="images")
        offered["uint8_images"] = (uint8_images, [as_bytes])
    if takes_encoded_images(shape):
        offered["encoded_images"] = (encoded_images, [texts])
    offered["with_threshold"] = (with_threshold, [spec, column])
    if takes_encoded_images(shape) or None not in shape:
        examples = tf.TensorSpec((None,), tf.string, name="inputs")
        offered["classify"] = (classify, [examples])
    return offered


def _threshold_of_rows(threshold, predicted):
    """(B,) thresholds; in rows that are not valid, the first class's."""
    import tensorflow as tf

    if threshold.ndim:
        return rule.threshold_of_rows(threshold, tf.maximum(predicted, 0))
    return tf.fill(tf.shape(predicted), threshold)


def _nan_where_not(is_valid, images):
    """Images with NaN in rows that are not valid, to tell `scored`."""
    import tensorflow as tf

    column = tf.reshape(is_valid, (-1, *[1] * (images.shape.rank - 1)))
    return tf.where(column, images, np.float32(np.nan))


def _file_of(example):
    """The file in a serialized tf.Example; raises if it has another form."""
    return _bytes_of(example, IMAGE_FEATURE)


def _text_of(example):
    """The text in a serialized tf.Example; raises if it has another form."""
    return _bytes_of(example, TEXT_FEATURE)


def _bytes_of(example, name):
    import tensorflow as tf

    feature = tf.io.FixedLenFeature((), tf.string)
    return tf.io.parse_single_example(example, {name: feature})[name]


def _vectors_of(examples, shape, dtype):
    """Raw inputs from serialized tf.Examples, and which rows are good ones.

    Whole numbers of a JSON request arrive as integers.
    """
    import tensorflow as tf

    def parsed_as(kind):
        def parse(example):
            feature = tf.io.FixedLenFeature(shape, kind)
            parsed = tf.io.parse_single_example(
                example, {VECTOR_FEATURE: feature}
            )
            numbers = tf.cast(parsed[VECTOR_FEATURE], dtype)
            if dtype.is_floating:
                return numbers
            # (Others would become numbers that fit.)
            same = tf.cast(numbers, kind) == parsed[VECTOR_FEATURE]
            fits = tf.debugging.Assert(tf.reduce_all(same), [example])
            with tf.control_dependencies([fits]):
                return tf.identity(numbers)

        return map_rows(parse, examples, shape, dtype)

    integers, are_integers = parsed_as(tf.int64)
    if not dtype.is_floating:
        return integers, are_integers
    numbers, are_numbers = parsed_as(tf.float32)
    # A row that is of one kind is 0 in the other.
    return numbers + integers, are_numbers | are_integers


def _require_feature(examples, name, is_good):
    """InvalidArgumentError with the name of a feature that no Example has.

    Where one has it, others that lack it are rows that are not valid.
    """
    import tensorflow as tf

    def lacks(example):
        feature = {name: tf.io.VarLenFeature(tf.string)}
        parsed = tf.io.parse_single_example(example, feature)
        return tf.cast(tf.size(parsed[name].values) == 0, tf.int32)

    def check():
        # (Parsed as another kind, a feature that is there is an error.)
        does_lack, _ = map_rows(lacks, examples, (), tf.int32)
        message = (
            f"No tf.Example in the request has the feature {name}, which this "
            "model needs."
        )
        return tf.debugging.Assert(tf.reduce_any(does_lack == 0), [message])

    return tf.cond(tf.reduce_any(is_good), tf.no_op, check)


def _checked(values, shape):
    """`values`, or InvalidArgumentError for no rows or another shape.

    (Sessions, and so servers, do not look at the shapes of a signature.)
    """
    import tensorflow as tf

    # One operation; assert_positive would take six.
    is_filled = tf.debugging.Assert(
        tf.size(values) > 0, ["The batch is empty: send at least one row."]
    )
    with tf.control_dependencies([is_filled]):
        return tf.ensure_shape(values, (None, *shape))


def _classification(answers, class_names):
    """Classes and scores for the Classify API, the decision first.

    "unknown" has the score 1 where the input is rejected, else 0; the known
    classes have their probabilities.
    """
    import tensorflow as tf

    names = tf.constant([UNKNOWN_NAME, *class_names])
    rejected = tf.cast(answers["is_unknown"], tf.float32)[:, tf.newaxis]
    scores = tf.concat([rejected, answers["probabilities"]], axis=1)
    # The decided class comes first, even among equals.
    decided = tf.one_hot(answers["class_id"] + 1, len(class_names) + 1)
    order = tf.argsort(
        scores + decided, axis=1, direction="DESCENDING", stable=True
    )
    return {
        "classes": tf.gather(names, order),
        "scores": tf.gather(scores, order, batch_dims=1),
    }
