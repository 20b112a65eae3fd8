# SPDX-License-Identifier: Apache-2.0
"""A trained Keras classifier, made an open-set classifier."""

from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.classifier_ends import ending_in_logits
from cac_tf.models.features import flat
from cac_tf.models.features import with_features
from cac_tf.models.raw_inputs import check_takes_one_array

# Both reject what is far from all known inputs; scores that look only at the
# size of the logits accept it (docs/scores.md). The first does better on near
# unknowns, but needs features.
_SCORE_OF_FEATURES, _SCORE_OF_LOGITS = "vim", "min_distance"


def wrap_classifier(
    cls, classifier, class_names, *, score, preprocessing, **options
):
    """Implements `OpenSetClassifier.from_classifier`; see there.

    Args:
        cls: `OpenSetClassifier` or a subclass.
        classifier: trained Keras model; see `ending_in_logits`.
        class_names: N different texts.
        score: as for `cls`, or None: see `default_score`.
        preprocessing: layer from raw inputs to what the classifier takes, or
            None.
        **options: passed to `cls`.

    Returns:
        A `cls`, built if the classifier knows the shape of its inputs.

    Raises:
        ValueError: a classifier that does not take one array of numbers, or
            whose end is not known, or that `cls` refuses.
    """
    check_takes_one_array(classifier, "The classifier")
    class_names = check_class_names(class_names, reserved=UNKNOWN_NAME)
    backbone = ending_in_logits(classifier, len(class_names))
    if score is None:
        score = default_score(backbone, options.get("features_layer"))
    model = cls(
        backbone,
        class_names,
        score=score,
        preprocessing=preprocessing,
        **options,
    )
    # (A subclassed model learns it from the first data.)
    shape = getattr(classifier, "input_shape", None)
    if preprocessing is None and shape is not None:
        model.build(tuple(shape))
    return model


def default_score(backbone, features_layer=None):
    """Name of a score that rejects whatever is far from all known inputs.

    Args:
        backbone: Keras model that ends in logits.
        features_layer: as for `OpenSetClassifier`.
    """
    try:
        both, _ = with_features(backbone, features_layer)
    except ValueError:
        return _SCORE_OF_LOGITS
    # A single feature has no residual.
    has_several = flat(both.outputs[0]).shape[-1] != 1
    return _SCORE_OF_FEATURES if has_several else _SCORE_OF_LOGITS
