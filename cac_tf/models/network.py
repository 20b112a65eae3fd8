# SPDX-License-Identifier: Apache-2.0
"""From raw inputs to named outputs: preprocessing, backbone, augmentation."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import Self

import keras
from keras import ops

from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.models.backbone_checks import by_name
from cac_tf.models.backbone_checks import has_graph
from cac_tf.models.backbone_checks import named_tensors
from cac_tf.models.features import flat
from cac_tf.models.features import last_layer_of
from cac_tf.models.features import with_features
from cac_tf.models.raw_inputs import dtype_taken_by

if TYPE_CHECKING:
    from cac_tf.scores.score import LastLayer

# Values of the argument `tta`.
TTA = (None, "flip")
# With "flip", the mean over an image and its mirror image is taken of these;
# other outputs are those of the image itself.
_AVERAGED = ("logits", "features")


def _takes_training(layer):
    """Whether a layer is told by an argument if it is training."""
    return "training" in inspect.signature(layer.call).parameters


@keras.saving.register_keras_serializable(package="CacTf")
class Network(keras.Model):
    """A backbone and the layers before it, with named outputs.

    Calling it returns a dict: always `logits`; `features`, the input of the
    last dense layer, if they can be found; and whatever else the backbone
    returns by name. It knows nothing of classes, centers, scores or thresholds.

    Args:
        backbone: Keras model or layer, (B, ...) -> (B, D) logits, or a dict
            of outputs with `logits` among them.
        preprocessing: layer from raw inputs to what the backbone takes.
        augmentation: layer applied only in training: one whose `call` has an
            argument `training`, as Keras' random layers and all models, must
            heed it. It comes between the two steps of `ImagePreprocessing`, on
            images in [0, 1], or after any other preprocessing.
        features_layer: name of the backbone's layer whose output is the
            features. None: the input of its last dense layer.
        tta: test-time augmentation. None, or "flip": outside training, logits
            and features are means over an image and its mirror image, at
            twice the cost.
        **kwargs: passed to `keras.Model`.

    Raises:
        ValueError: an invalid tta; when built: no such features_layer, no
            `logits` among the outputs, or tta for inputs that are not images.

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
        backbone: keras.Model,
        preprocessing: keras.layers.Layer | None = None,
        augmentation: keras.layers.Layer | None = None,
        features_layer: str | None = None,
        tta: str | None = None,
        **kwargs: Any,
    ) -> None:
        # Not the global policy: it would cast raw pixels to half precision.
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        if tta not in TTA:
            raise ValueError(f'tta must be None or "flip"; got {tta!r}.')
        super().__init__(**kwargs)
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.features_layer = features_layer
        self.tta = tta

    def build(self, input_shape: Shape) -> None:
        if self.built:  # type: ignore[has-type]
            return
        self._raw_shape = tuple(input_shape)
        x = keras.Input((*input_shape[1:],), dtype=self.raw_input_dtype)
        for layer in (self.preprocessing, self.augmentation):
            if layer is not None:
                x = _symbolic(layer, x)
        if self.tta is not None and len(x.shape) != 4:
            raise ValueError(
                f'tta="flip" is for images, (batch, height, width, '
                f"channels); the backbone takes {tuple(x.shape)}."
            )
        outputs = _symbolic(self.backbone, x)
        self._find_features(by_name(outputs, self.backbone.name))
        self.built = True

    def _find_features(self, outputs):
        network, last, problem = self.backbone, None, None
        if "features" not in outputs:
            try:
                network, last = with_features(
                    self.backbone, self.features_layer
                )
                outputs["features"] = network.outputs[0]
                if len(outputs) > 2:
                    # All outputs, from one graph.
                    network = keras.Model(
                        self.backbone.input,
                        {
                            **named_tensors(self.backbone),
                            "features": network.outputs[0],
                        },
                    )
            except ValueError as error:
                if self.features_layer is not None:
                    raise
                network, problem = self.backbone, error
        elif self.features_layer is not None:
            raise ValueError(
                "The backbone names its features itself; leave features_layer "
                "out."
            )
        # In a namespace, which Keras neither tracks nor saves: the layers are
        # the backbone's.
        self._found = types.SimpleNamespace(
            network=network, last_layer=last, problem=problem
        )
        self.names_of_outputs = tuple(sorted(outputs))
        self.width = outputs["logits"].shape[-1]

    def call(
        self, inputs: Tensor, training: bool = False, single_view: bool = False
    ) -> Outputs:
        """Outputs by name.

        Args:
            inputs: (B, ...) raw inputs.
            training: whether to apply augmentation and dropout.
            single_view: whether to take the images as they are, ignoring
                `tta`.
        """
        x = self._preprocessed(inputs, training)
        outputs = self._outputs(x, training)
        if not (training or single_view or self.tta is None):
            mirrored = self._outputs(ops.flip(x, axis=2), training)
            for name in _AVERAGED:
                if name in outputs:
                    outputs[name] = (outputs[name] + mirrored[name]) / 2.0
        return outputs

    def _preprocessed(self, inputs, training):
        x = inputs
        has_two_halves = hasattr(self.preprocessing, "to_unit_range")
        if has_two_halves:
            x = self.preprocessing.to_unit_range(x)
        elif self.preprocessing is not None:
            x = self.preprocessing(x)
        # (`RandomCrop` and others change the size in inference, too.)
        if self.augmentation is not None and (
            training or _takes_training(self.augmentation)
        ):
            x = self.augmentation(x, training=training)
        if has_two_halves:
            x = self.preprocessing.normalize(x)
        return x

    def _outputs(self, x, training):
        outputs = self._found.network(x, training=training)
        if self._found.network is self.backbone:
            outputs = dict(by_name(outputs, self.backbone.name))
        elif isinstance(outputs, dict):
            outputs = dict(outputs)
        else:  # Of `with_features`.
            outputs = dict(zip(("features", "logits"), outputs, strict=True))
        outputs["logits"] = ops.cast(outputs["logits"], "float32")
        if "features" in outputs:
            outputs["features"] = flat(outputs["features"])
        return outputs

    def outputs_seen(self) -> tuple[str, ...]:
        """Names of the outputs, as far as known before building; or ()."""
        if self.built:
            return self.names_of_outputs
        if not has_graph(self.backbone):
            return ()
        return tuple(sorted({*named_tensors(self.backbone), "features"}))

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
            f"{what} reads {name!r}, which the backbone does not return; its "
            f"outputs are {', '.join(self.names_of_outputs)}. Let it return a "
            f"dict with {name!r} in it."
        )

    @property
    def last_layer(self) -> LastLayer | None:
        """`scores.LastLayer` with the current weights, or None."""
        return last_layer_of(self._found.last_layer)

    @property
    def raw_input_dtype(self) -> str:
        """Type of raw inputs: "float32", or that of a model on whole numbers.

        A model on token ids has e.g. "int32". (Floats, and the whole numbers
        of images before `ImagePreprocessing`, count as float32.)
        """
        is_first = self.preprocessing is None
        return dtype_taken_by(self.backbone if is_first else self.preprocessing)

    @property
    def raw_input_shape(self) -> Shape:
        """Shape of one raw input, e.g. (height, width, channels)."""
        if not self.built:
            raise ValueError("The model is not built yet: fit or call it.")
        return self._raw_shape[1:]

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "backbone": serialize(self.backbone),
            "preprocessing": serialize(self.preprocessing),
            "augmentation": serialize(self.augmentation),
            "features_layer": self.features_layer,
            "tta": self.tta,
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        for key in ("backbone", "preprocessing", "augmentation"):
            config[key] = keras.saving.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )
        return cls(**config)

    def get_build_config(self) -> Config | None:
        return {"input_shape": self._raw_shape} if self.built else None


def _symbolic(layer, x):
    """Builds `layer` for inputs like `x` and returns its outputs.

    It uses a symbolic call, because subclassed models have neither a `build`
    nor a `compute_output_shape` of their own. (Of inputs that are made anew, so
    that the layers' graph does not grow.)
    """
    return layer(keras.Input(batch_shape=x.shape, dtype=x.dtype))
