# SPDX-License-Identifier: Apache-2.0
"""What a served model can be asked, and what it answers.

All functions take rows of different clients in one batch, so a row never
fails a request: it comes back with `is_valid` false, rejected, and every
number in it finite (infinity and NaN are no JSON).
"""

import typing

import numpy as np
from keras import ops

from cac_tf.export.image_decoding import decode_images
from cac_tf.export.row_by_row import map_rows
from cac_tf.layers.open_set_decision import UNKNOWN
from cac_tf.layers.open_set_decision import UNKNOWN_NAME
from cac_tf.layers.rejection_score import softmin

# Stands for "infinitely far" where an answer must be finite.
LARGEST = float(np.finfo("float32").max)
# Twice the pixels of a 4,096 x 4,096 image; 100 MB as decoded bytes.
DEFAULT_MAX_PIXELS = 2**25
# Features of a tf.Example that the Classify API sends.
IMAGE_FEATURE = "image/encoded"
VECTOR_FEATURE = "features"


class Answering(typing.NamedTuple):
    """How a served model answers, apart from its weights."""

    theta: float
    distance_formula: typing.Callable  # of `AnchoredDistance`, traceable
    version: int  # echoed in every row
    max_pixels: int  # of an encoded image


def input_shape(model):
    """(H, W, C) of served images; the size of the network's where it is free.

    Of inputs that are no images: their shape.
    """
    shape = tuple(model.raw_input_shape)
    if len(shape) == 3 and None in shape[:2]:
        own = (
            getattr(model.preprocessing, "height", None),
            getattr(model.preprocessing, "width", None),
        )
        shape = (shape[0] or own[0], shape[1] or own[1], shape[2])
    return shape


def takes_encoded_images(shape):
    """Whether files can be decoded to inputs of this shape."""
    return len(shape) == 3 and None not in shape and shape[-1] in (1, 3)


def scored(model, images, answering):
    """What an answer is made of, from raw inputs.

    A row with a pixel, or a distance, that is not finite is as far from every
    class as float32 goes. Its other numbers follow from that, so nothing has
    to be put right afterwards: at batch 1 every operation counts.

    Args:
        model: `OpenSetClassifier`.
        images: (B, ...) float32 raw inputs.
        answering: `Answering`.

    Returns:
        Dict of (B, ...) tensors: `distances`, `gamma`, `probabilities`
        (softmin; softmax of the logits where the score reads logits),
        `unknown_score`, `nearest_class_id` and `is_valid`.
    """
    import tensorflow as tf

    pixel_axes = list(range(1, images.shape.rank))
    valid = {}

    def distances_or_far(logits):
        distances = answering.distance_formula(logits)
        # Infinity and NaN show in a sum, in one pass. (So does a sum beyond
        # 1e38; no network makes sense of such pixels.)
        total = tf.reduce_sum(images, axis=pixel_axes) + tf.reduce_sum(
            distances, axis=1
        )
        valid["rows"] = tf.abs(total) <= LARGEST
        return tf.where(valid["rows"][:, tf.newaxis], distances, LARGEST)

    outputs = model.score_outputs(images, distances_or_far)
    logits = outputs.pop("logits")
    outputs.pop("features", None)
    is_valid = valid["rows"]
    if not model.score.reads_distances:
        # Such a score knows nothing of the distances.
        score = outputs["unknown_score"]
        is_valid &= tf.abs(score) <= LARGEST
        logits = tf.where(is_valid[:, tf.newaxis], logits, 0.0)
        outputs["unknown_score"] = tf.where(is_valid, score, LARGEST)
        outputs["probabilities"] = ops.softmax(logits, axis=-1)
    else:
        outputs["probabilities"] = softmin(outputs["distances"])
    return {**outputs, "is_valid": is_valid}


def answer(model, outputs, answering, threshold=None):
    """The answer to inputs, as graph operations.

    Args:
        model: `OpenSetClassifier`.
        outputs: of `scored`.
        answering: `Answering`.
        threshold: (B,) finite thresholds in place of theta.

    Returns:
        Dict of tensors, all (B, ...): `class_id` (-1: unknown), `label`,
        `is_unknown`, `unknown_score`, `nearest_class_id`, `gamma`,
        `distances`, `probabilities`, `threshold`, `model_version`,
        `is_valid`.
    """
    import tensorflow as tf

    score, is_valid = outputs["unknown_score"], outputs["is_valid"]
    if threshold is None:
        threshold = tf.fill(tf.shape(score), answering.theta)
    nearest = tf.where(is_valid, outputs["nearest_class_id"], UNKNOWN)
    is_unknown = ~(is_valid & (score <= threshold))
    class_id = tf.where(is_unknown, UNKNOWN, nearest)
    # In the place of UNKNOWN + 1.
    names = tf.constant([UNKNOWN_NAME, *model.class_names])
    return {
        **outputs,
        "class_id": class_id,
        "label": tf.gather(names, class_id + 1),
        "is_unknown": is_unknown,
        "nearest_class_id": nearest,
        "threshold": threshold,
        "model_version": tf.fill(
            tf.shape(score), tf.constant(answering.version, tf.int64)
        ),
    }


def signatures(model, answering):
    """The functions of a served model, by the names of their signatures.

    Args:
        model: `OpenSetClassifier`, built.
        answering: `Answering`.

    Returns:
        Dict of name -> (function, list of `tf.TensorSpec`), the default one
        first. Files can be asked only of models on images of one or three
        channels, whose size is known.
    """
    import tensorflow as tf

    shape = input_shape(model)
    spec = tf.TensorSpec((None, *shape), tf.float32, name="images")
    column = tf.TensorSpec((None,), tf.float32, name="threshold")
    texts = tf.TensorSpec((None,), tf.string, name="images")

    # One graph of the network for all signatures, not one for each.
    @tf.function(input_signature=[spec], autograph=False)
    def network(images):
        return scored(model, images, answering)

    def ask(images, threshold=None):
        return answer(model, network(images), answering, threshold)

    def serving_default(images):
        return ask(_checked(images, shape))

    def uint8_images(images):
        return ask(tf.cast(_checked(images, shape), tf.float32))

    def with_threshold(images, threshold):
        images = _checked(images, shape)
        threshold = tf.ensure_shape(threshold, (None,))
        same = tf.debugging.assert_equal(
            tf.size(threshold),
            tf.shape(images)[0],
            message="threshold must hold one number for each row of images",
        )
        with tf.control_dependencies([same]):
            threshold = tf.identity(threshold)
        # NaN is not >= anything.
        lowest = 0.0 if model.score.IS_NON_NEGATIVE else -LARGEST
        is_allowed = (threshold >= lowest) & (threshold <= LARGEST)
        threshold = tf.where(is_allowed, threshold, answering.theta)
        return ask(_nan_where_not(is_allowed, images), threshold)

    def decoded(rows, file_of=None):
        pixels, is_readable = decode_images(
            rows, *shape, answering.max_pixels, file_of
        )
        return _nan_where_not(is_readable, pixels)

    def encoded_images(images):
        return ask(decoded(_checked(images, ())))

    def classify(inputs):
        inputs = _checked(inputs, ())
        if takes_encoded_images(shape):
            images = decoded(inputs, _file_of)
        else:
            images = _vectors_of(inputs, shape)
        return _classification(ask(images), model.class_names)

    offered = {"serving_default": (serving_default, [spec])}
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


def _nan_where_not(is_valid, images):
    """Images with NaN in rows that are not valid, by which `scored` knows."""
    import tensorflow as tf

    column = tf.reshape(is_valid, (-1, *[1] * (images.shape.rank - 1)))
    return tf.where(column, images, np.float32(np.nan))


def _file_of(example):
    """The file in a serialized tf.Example; raises on one of another form."""
    import tensorflow as tf

    feature = tf.io.FixedLenFeature((), tf.string)
    return tf.io.parse_single_example(example, {IMAGE_FEATURE: feature})[
        IMAGE_FEATURE
    ]


def _vectors_of(examples, shape):
    """Raw inputs out of serialized tf.Examples; NaN in the rows of bad ones.

    Whole numbers of a JSON request arrive as integers.
    """
    import tensorflow as tf

    def parsed_as(dtype):
        def parse(example):
            feature = tf.io.FixedLenFeature(shape, dtype)
            parsed = tf.io.parse_single_example(
                example, {VECTOR_FEATURE: feature}
            )
            return tf.cast(parsed[VECTOR_FEATURE], tf.float32)

        return map_rows(parse, examples, shape)

    numbers, are_numbers = parsed_as(tf.float32)
    integers, are_integers = parsed_as(tf.int64)
    # Of either kind the other's row is 0.
    return _nan_where_not(are_numbers | are_integers, numbers + integers)


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
    """Classes and scores as the Classify API has them, the decision first.

    "unknown" has the score 1 where the input is rejected, else 0; the known
    classes have their probabilities.
    """
    import tensorflow as tf

    names = tf.constant([UNKNOWN_NAME, *class_names])
    rejected = tf.cast(answers["is_unknown"], tf.float32)[:, tf.newaxis]
    scores = tf.concat([rejected, answers["probabilities"]], axis=1)
    # The class that was decided for is first, also among equals.
    decided = tf.one_hot(answers["class_id"] + 1, len(class_names) + 1)
    order = tf.argsort(
        scores + decided, axis=1, direction="DESCENDING", stable=True
    )
    return {
        "classes": tf.gather(names, order),
        "scores": tf.gather(scores, order, batch_dims=1),
    }
