# SPDX-License-Identifier: Apache-2.0
"""How an open-set classifier is kept: files, exports, copies.

Whatever is kept belongs together: centers, statistics and threshold are those
of one classifier and one score.
"""

import os
from collections.abc import Mapping
from typing import Any
from typing import Self

import keras
import numpy as np

from cac_tf import atomic_files
from cac_tf import scores as score_rules
from cac_tf.annotations import Config
from cac_tf.annotations import Path

# Raised when saved models become other ones.
_FORMAT = 7


class Kept(keras.Model):
    """Base of `OpenSetClassifier`: saving, exporting, its config.

    A subclass also derives from `ScoredClassifier`.
    """

    def save(
        self, filepath: Path, overwrite: bool = True, **kwargs: Any
    ) -> Any:
        """Saves the whole model: classifier, centers, score, threshold, names.

        The file is written under a temporary name and then renamed, so a full
        disk or a killed process leaves an earlier file intact.

        Raises:
            ValueError: the name does not end in `.keras`.
            FileExistsError: the file exists, and `overwrite` is false.
            RuntimeError: a shared classifier was trained on.
        """
        filepath = os.fspath(filepath)
        if not filepath.endswith(".keras"):
            raise ValueError(
                "The name of a model file must end in .keras; got "
                f"{filepath!r}. (A SavedModel is written by export.)"
            )
        self.require_same_classifier()
        if os.path.exists(filepath) and not overwrite:
            raise FileExistsError(
                f"{filepath} already exists; pass overwrite=True to replace it."
            )
        with atomic_files.replacing(filepath) as temporary:
            super().save(temporary, overwrite=True, **kwargs)

    def export(
        self,
        filepath: Path,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
    ) -> None:
        """Writes a SavedModel with the rejection rule built in.

        `export.write_saved_model` describes its outputs;
        `export.write_model_folder` makes a complete folder for TF Serving. The
        graph holds only stock TensorFlow operations.

        Args:
            filepath: folder to write. It is written under a temporary name
                and then renamed, so it is never incomplete.
            format: "tf_saved_model". (Other formats: `cac_tf.export`.)
            verbose: whether Keras prints what it wrote.

        Raises:
            ValueError: no threshold, another format.
            FileExistsError: `filepath` exists.
            RuntimeError: Keras runs on another backend than TensorFlow, the
                classifier holds a compiled function with a fused operation,
                which no server knows, or a shared one was trained on.
        """
        from cac_tf.export.saved_model import write_saved_model

        if format != "tf_saved_model":
            raise ValueError(
                f'format must be "tf_saved_model"; got {format!r}. For '
                "other formats, use export.write_litert or export.write_onnx."
            )
        self.require_same_classifier()
        write_saved_model(self, filepath, verbose=bool(verbose))

    # ---- weights in files -------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        # (Every way to a file comes here: save, save_weights, pickle.)
        self.require_same_classifier()
        super().save_own_variables(store)
        # Weights of another score may have the same shapes.
        store["score"] = np.frombuffer(self._identity.encode(), "uint8")

    def load_own_variables(self, store: Any) -> None:
        found = np.asarray(store["score"]).tobytes().decode()
        if found != self._identity:
            raise ValueError(
                f"The weights belong to a model with the score {found}, and "
                "their threshold is for that score; this model has "
                f"{self._identity}."
            )
        names = list(store.keys())  # (Keras' stores have no other way.)
        super().load_own_variables(
            {name: store[name] for name in names if name != "score"}
        )

    @property
    def _identity(self):
        config = self.score.get_config()
        settings = ", ".join(f"{k}={v!r}" for k, v in sorted(config.items()))
        return f"{type(self.score).__name__}({settings})"

    # ---- config -----------------------------------------------------------

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        # (Arrays are weights; here are their shapes.)
        return {
            "format": _FORMAT,
            "name": self.name,
            "classifier": serialize(self.classifier),
            "class_names": list(self.class_names),
            "score": serialize(self.score),
            "centers": self.magnitude
            if self.has_anchors
            else list(self.class_centers.shape),
            "statistics": {
                name: list(value.shape)
                for name, value in self._statistics().items()
            },
            "features_layer": self.network.features_layer,
            "tta": self.tta,
            "input_shape": list(self.inputs_taken.shape),
            "journal": self.journal,
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        found = config.pop("format", None)
        if found != _FORMAT:
            raise ValueError(
                "The model was saved by another version of cac_tf (its "
                f"format is {found}; this version uses {_FORMAT}). Create it "
                "again, or load it with the version that saved it."
            )
        # Scores are imported, and so known to Keras, when one is looked up.
        score_rules.names()
        for key in ("classifier", "score"):
            config[key] = keras.saving.deserialize_keras_object(
                _not_compiled(config[key]), custom_objects=custom_objects
            )

        # Only their shapes are known; until they are loaded, none is finite.
        if not isinstance(config["centers"], (int, float)):
            config["centers"] = keras.KerasTensor(config["centers"])
        config["statistics"] = {
            name: keras.KerasTensor(shape)
            for name, shape in config["statistics"].items()
        }
        return cls(**config)


def _not_compiled(config):
    """A config without optimizers, losses and metrics, whose code may be lost.

    The classifier of a loaded model is frozen.
    """
    if isinstance(config, list):
        return list(map(_not_compiled, config))
    if not isinstance(config, dict):
        return config
    return {
        key: _not_compiled(value)
        for key, value in config.items()
        if key != "compile_config"
    }
