# SPDX-License-Identifier: Apache-2.0
"""Texts as the tokens that a network of KerasHub reads."""

from collections.abc import Mapping
from typing import Any
from typing import Self

import keras

from cac_tf import lazy
from cac_tf.annotations import Config


@keras.saving.register_keras_serializable(package="CacTf")
class TokensOfTexts(keras.layers.Layer):
    """What a network of KerasHub reads of texts.

    It says the shapes of its outputs itself: those of KerasHub try them out,
    and have no vocabulary yet while a file is loaded.

    Args:
        preprocessor: `keras_hub.models.TextClassifierPreprocessor`.
        dtypes: of its outputs, by name; None: they are tried out.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        preprocessor: Any,
        dtypes: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.preprocessor = preprocessor
        if dtypes is None:
            tried = preprocessor(keras.Input((), dtype="string"))
            dtypes = {k: str(one.dtype) for k, one in tried.items()}
        self.dtypes = dict(dtypes)
        self.supports_jit = False
        self.built = True

    def call(self, texts: Any) -> Any:
        return self.preprocessor(texts)

    def compute_output_spec(self, texts: Any) -> Any:
        shape = (texts.shape[0], self.preprocessor.sequence_length)
        return {
            name: keras.KerasTensor(shape, dtype)
            for name, dtype in self.dtypes.items()
        }

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "preprocessor": keras.saving.serialize_keras_object(
                self.preprocessor
            ),
            "dtypes": self.dtypes,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        lazy.require("keras_hub", "hub")
        own = keras.saving.deserialize_keras_object(config["preprocessor"])
        return cls(**{**config, "preprocessor": own})
