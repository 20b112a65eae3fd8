# SPDX-License-Identifier: Apache-2.0
"""What a classifier's last dense layers read: its embedding of an input."""

import keras

from cac_tf.keras_private import operation_behind
from cac_tf.keras_private import sources_of
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import last_tensor
from cac_tf.models.features import flat
from cac_tf.models.features import model_like
from cac_tf.models.features import one_or_all
from cac_tf.models.features import with_features

# A head is made of them.
_OF_HEADS = (
    keras.layers.Dense,
    keras.layers.Activation,
    keras.layers.ReLU,
    keras.layers.Dropout,
    keras.layers.BatchNormalization,
)


def embedding_model(classifier: keras.Model) -> keras.Model:
    """A model that gives the embedding of raw inputs, (B, E).

    It is what the dense layers at the classifier's end read: of a head on a
    pretrained network what that network gives, of a network for vectors these,
    normalized. Inputs of classes that the head was not trained on differ more
    there than in its hidden layers. Where a map of features is flattened, these
    are many and depend on the place; then it is the input of the last layer.

    Args:
        classifier: built Keras model, (B, ...) -> (B, N) logits.

    Raises:
        ValueError: its layers are called by its own code.

    Example:

    >>> head = keras.Sequential([keras.Input([8]),
    ...     keras.layers.Dense(5, "relu"), keras.layers.Dense(3)])
    >>> embedding_model(head).output_shape
    (None, 8)
    """
    both, _ = with_features(classifier)
    found = _before_head(classifier)
    shape = found.shape
    behind = operation_behind(found)
    if len(shape) != 2 or isinstance(behind, keras.layers.Flatten):
        found = both.outputs[0]
    return model_like(classifier, flat(found))


def _before_head(model):
    """The tensor that the layers of a head at a model's end begin with."""
    tensor = last_tensor(model)
    while True:
        behind = operation_behind(tensor)
        if isinstance(behind, keras.Model) and has_graph(behind):
            inner = _before_head(behind)
            if inner is behind.outputs[0]:
                return tensor
            if not any(inner is one for one in behind.inputs):
                part = model_like(behind, inner)
                return part(one_or_all(sources_of(tensor)))
        elif not isinstance(behind, _OF_HEADS):
            return tensor
        sources = sources_of(tensor)
        if len(sources) != 1:
            return tensor
        (tensor,) = sources
