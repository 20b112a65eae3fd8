# SPDX-License-Identifier: Apache-2.0
"""A trained classifier as a network with named outputs."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import TYPE_CHECKING
from typing import Any

import keras
from keras import ops

from cac_tf.annotations import Outputs
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.models.backbone_checks import by_name
from cac_tf.models.backbone_checks import named_tensors
from cac_tf.models.features import flat
from cac_tf.models.features import last_layer_of
from cac_tf.models.features import with_features
from cac_tf.models.inputs import kind_of_inputs

if TYPE_CHECKING:
    from cac_tf.scores.score import LastLayer

# Values of the argument `tta`.
TTA = (None, "flip")
# With "flip", the mean over an image and its mirror image is taken of these;
# other outputs are those of the image itself.
_AVERAGED = ("logits", "features", "class_distances")


class Network(keras.Model):
    """A classifier's logits, features and other outputs, by name.

    It is for prediction: the classifier is never in training mode. It knows
    nothing of classes, centers, scores or thresholds.

    Args:
        classifier: built Keras model, (B, ...) -> (B, D) logits, or a dict
            of outputs with `logits` among them.
        features_layer: name of the classifier's layer whose output is the
            features. None: the input of its last dense layer.
        tta: test-time augmentation. None, or "flip": logits and features are
            means over an image and its mirror image, at twice the cost.
        input_shape: of one raw input; None: that of the classifier's `Input`.
        **kwargs: passed to `keras.Model`.

    Raises:
        ValueError: an invalid tta, or tta for inputs that are not images; no
            such features_layer, or no `logits` among the outputs.

    Example:

    >>> import keras, numpy as np
    >>> inputs = keras.Input([4])
    >>> hidden = keras.layers.Dense(8, activation="relu")(inputs)
    >>> logits = keras.layers.Dense(3)(hidden)
    >>> network = Network(keras.Model(inputs, {"logits": logits, "h": hidden}))
    >>> outputs = network(np.ones((2, 4), "float32"))
    >>> {name: tuple(value.shape) for name, value in sorted(outputs.items())}
    {'features': (2, 8), 'h': (2, 8), 'logits': (2, 3)}
    """

    def __init__(
        self,
        classifier: keras.Model,
        features_layer: str | None = None,
        tta: str | None = None,
        input_shape: Shape | None = None,
        **kwargs: Any,
    ) -> None:
        # Not the global policy: it would cast raw pixels to half precision.
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        if tta not in TTA:
            raise ValueError(f'tta must be None or "flip"; got {tta!r}.')
        super().__init__(**kwargs)
        self.classifier = classifier
        self.features_layer = features_layer
        self.tta = tta
        self.inputs_taken = kind_of_inputs(classifier, input_shape)
        shape = self.inputs_taken.shape
        if tta is not None and len(shape) != 3:
            raise ValueError(
                'tta="flip" is for images, (batch, height, width, '
                f"channels); the classifier expects {(None, *shape)}."
            )
        # By a symbolic call, because subclassed models have neither a `build`
        # nor a `compute_output_shape` of their own.
        taken = keras.Input(shape, dtype=self.inputs_taken.dtype)
        outputs = classifier(self._as_taken(taken))
        self._find_features(dict(by_name(outputs, classifier.name)))
        self.built = True

    def _find_features(self, outputs):
        network, last, problem = self.classifier, None, None
        if "features" not in outputs:
            try:
                network, last = with_features(
                    self.classifier, self.features_layer
                )
                outputs["features"] = network.outputs[0]
                if len(outputs) > 2:
                    # All outputs, from one graph.
                    network = keras.Model(
                        self.classifier.input,
                        {
                            **named_tensors(self.classifier),
                            "features": network.outputs[0],
                        },
                    )
            except ValueError as error:
                if self.features_layer is not None:
                    raise
                network, problem = self.classifier, error
        elif self.features_layer is not None:
            raise ValueError(
                "The classifier already names its features; leave "
                "features_layer out."
            )
        # In a namespace, which Keras neither tracks nor saves: the layers are
        # the classifier's.
        self._found = types.SimpleNamespace(
            network=network, last_layer=last, problem=problem
        )
        self.names_of_outputs = tuple(sorted(outputs))
        self.width = outputs["logits"].shape[-1]
        widths = {name: x.shape[-1] for name, x in outputs.items()}
        self.width_of_features = widths.get("features")
        self.width_of_class_distances = widths.get("class_distances")

    def call(self, inputs: Tensor, single_view: bool = False) -> Outputs:
        """Outputs by name.

        Args:
            inputs: (B, ...) raw inputs.
            single_view: whether to take the images as they are, ignoring
                `tta`.
        """
        outputs = self._outputs(inputs)
        if not (single_view or self.tta is None):
            mirrored = self._outputs(ops.flip(inputs, axis=2))
            for name in _AVERAGED:
                if name in outputs:
                    outputs[name] = (outputs[name] + mirrored[name]) / 2.0
        return outputs

    def _as_taken(self, x):
        """Texts, (B,), as (B, 1) where the classifier takes these."""
        inputs = getattr(self.classifier, "inputs", None)
        if self.inputs_taken.are_texts and inputs and len(inputs[0].shape) == 2:
            return ops.expand_dims(x, axis=-1)
        return x

    def _outputs(self, x):
        outputs = self._found.network(self._as_taken(x), training=False)
        if self._found.network is self.classifier:
            outputs = dict(by_name(outputs, self.classifier.name))
        elif isinstance(outputs, dict):
            outputs = dict(outputs)
        else:  # Of `with_features`.
            outputs = dict(zip(("features", "logits"), outputs, strict=True))
        outputs["logits"] = ops.cast(outputs["logits"], "float32")
        if "features" in outputs:
            outputs["features"] = flat(outputs["features"])
        return outputs

    def outputs_of(
        self, inputs: Tensor, names: Iterable[str], single_view: bool = False
    ) -> Outputs:
        """Some of the outputs."""
        outputs = self.call(inputs, single_view)
        return {name: outputs[name] for name in names}

    def completed(self, outputs: Outputs) -> Outputs:
        """Outputs that exist already, as those of a call."""
        return outputs

    def require_output(self, name: str, what: str) -> None:
        """Raises ValueError unless there is an output of this name.

        Args:
            name: name of the output.
            what: what needs it; the subject of the message.
        """
        if name in self.names_of_outputs:
            return
        if name == "features":
            raise self._found.problem
        raise ValueError(
            f"{what} needs {name!r}, which the classifier does not return; "
            f"its outputs are {', '.join(self.names_of_outputs)}. Let it "
            f"return a dict with the key {name!r}."
        )

    @property
    def last_layer(self) -> LastLayer | None:
        """`scores.LastLayer` with the current weights, or None."""
        return last_layer_of(self._found.last_layer)
