# SPDX-License-Identifier: Apache-2.0
"""A classifier of many inputs: a SavedModel, or a model's own graph.

A SavedModel is asked by TensorFlow alone. A `.keras` file is asked by the same
graph that its export would have, so both give the same answers.
"""

import hashlib
import json
import os
import pathlib
import types
import typing
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cac_tf.annotations import Path
from cac_tf.data.image_file import problem_of
from cac_tf.decision import rule
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models.raw_inputs import InputKind
from cac_tf.models.raw_inputs import RawInputs
from cac_tf.models.raw_inputs import takes_encoded_images
from cac_tf.models.raw_inputs import values_of

_SAVED_MODEL = "saved_model.pb"
_FILES, _PIXELS, _ANY = "encoded_images", "uint8_images", "serving_default"
_NOT_FINITE = "a distance to a class is not finite"
_NOT_ASKED = (
    f"an image with more pixels than this model accepts, or {_NOT_FINITE}"
)
_NONE: Mapping[str, Any] = types.MappingProxyType({})
_INPUTS = {
    "input_shape": "shape",
    "input_dtype": "dtype",
    "inputs_are_pixels": "are_pixels",
    "input_ids": "num_ids",
}


class Answer(typing.NamedTuple):
    """What a classifier says of one input; with an `error`, nothing else."""

    label: str = ""  # class name, or "unknown"
    class_id: int | None = None  # -1 for unknown
    is_unknown: bool | None = None
    unknown_score: float | None = None
    p_value: float | None = None  # small: unusual among known inputs
    threshold: float | None = None
    predicted_class: str = ""  # before rejection
    error: str = ""
    probabilities: tuple | list = ()  # one for each class


class Classifier:
    """Classifies files of images, texts or rows of an array, many at a time.

    Args:
        signature: function from the name of a signature to that signature of
            the SavedModel, or None if there is no such signature.
        description: the contents of `assets/model.json`: `class_names` and, for
            one input without the batch axis, `input_shape`, `input_dtype`,
            `inputs_are_pixels` and `input_ids`, see `InputKind`.
        path: the model's path.
        input_columns: columns of the table that the model was trained on, if
            they are known.
        embeddings: functions from `embedding_graphs`, for `features`.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> network = keras.Sequential([keras.Input([8, 8, 1]),
    ...     keras.layers.Flatten(), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(network, ["left", "right"])
    >>> model.set_threshold(1e6)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> (answer,) = Classifier.load(path).classify([b"no image"])
    >>> answer.error
    'not a JPEG, PNG, WebP or BMP image'
    """

    def __init__(
        self,
        signature: Callable[[str], Callable[..., Any] | None],
        description: Mapping[str, Any],
        path: Path,
        input_columns: Sequence[str] = (),
        embeddings: Mapping[str, Callable[..., Any]] = _NONE,
    ) -> None:
        self._signature, self._path = signature, pathlib.Path(path)
        self._embeddings = embeddings
        # Of a table, those that it was trained on; empty if that is not known.
        self.input_columns = tuple(input_columns)
        self.class_names = tuple(description["class_names"])
        kind = {own: description[name] for name, own in _INPUTS.items()}
        self._kind = InputKind(**{**kind, "shape": tuple(kind["shape"])})

    @classmethod
    def load(cls, path: str, with_features: bool = False) -> Self:
        """Loads a classifier from a file or folder.

        Args:
            path: a `.keras` file, a run's folder, a SavedModel, or a TensorFlow
                Serving model folder, whose newest version is used.
            with_features: whether `features` will be called.

        Raises:
            ValueError: the path holds something else, the model has no
                threshold, or features were requested from a SavedModel or a
                network that has none.
            RuntimeError: the path is a `.keras` file and Keras is not running
                on TensorFlow.
        """
        path = find_model(path)
        is_file = os.path.basename(path).endswith(".keras")
        if is_file:
            loaded = _of_keras(path, with_features)
        elif with_features:
            raise ValueError(
                f"{path} is a SavedModel, which returns answers but no "
                "features. Give the .keras file it was exported from, or its "
                "run folder."
            )
        else:
            loaded = (*_of_saved_model(path), _NONE)
        signature, description, embeddings = loaded
        columns = description.get("input_columns") or columns_of_run(path)
        return cls(signature, description, path, columns, embeddings)

    @classmethod
    def taking_inputs_of(
        cls, kind: InputKind, class_names: Sequence[str], path: Path
    ) -> Self:
        """A stand-in that knows only how files are read for a model.

        It answers nothing.

        Args:
            kind: what the model takes.
            class_names, path: of the model.
        """
        description = {
            name: getattr(kind, own) for name, own in _INPUTS.items()
        }
        description["class_names"] = class_names
        description["input_shape"] = kind.fixed_shape

        def signature(name):
            takes_it = takes_encoded_images(kind.fixed_shape)
            return kind if name == _FILES and takes_it else None

        return cls(signature, description, path, columns_of_run(path))

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of one input."""
        return self._kind.shape

    @property
    def takes_files(self) -> bool:
        """Whether inputs may be files of images."""
        return self._signature(_FILES) is not None

    @property
    def takes_texts(self) -> bool:
        """Whether inputs are texts."""
        return self._kind.are_texts

    def sha256(self) -> str:
        """SHA-256 of the model's file, or of all files of the SavedModel."""
        files = [self._path]
        if self._path.is_dir():
            files = sorted(p for p in self._path.rglob("*") if p.is_file())
        digest = hashlib.sha256()
        for path in files:
            digest.update(path.relative_to(self._path).as_posix().encode())
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def rows(self, values: ArrayLike, what: str) -> np.ndarray:
        """Brings an array to the shape that the model takes.

        Args:
            values: (B, ...) array; an axis of one channel may be left out.
            what: name of the array, for messages.

        Raises:
            ValueError: the shape does not match the model's, or the values are
                not numbers, or not texts, as the model requires.
        """
        values, shape = values_of(values, self._kind, what), self.input_shape
        if shape[-1:] == (1,) and values.ndim == len(shape):
            values = values[..., np.newaxis]
        fits = values.ndim == len(shape) + 1 and all(
            size in (None, own)
            for size, own in zip(shape, values.shape[1:], strict=True)
        )
        if not fits:
            raise ValueError(
                f"{what} has rows of shape {values.shape[1:]}; the model "
                f"expects {shape}."
            )
        return values

    def classify(
        self,
        values: list[bytes] | np.ndarray,
        threshold: float | None = None,
    ) -> list[Answer]:
        """Classifies inputs.

        Args:
            values: list of file contents, as bytes; or an array of rows, see
                `rows`.
            threshold: a number in place of the model's own.

        Returns:
            List of `Answer`. Inputs that are not images, that
            `predict_open_set` would refuse or that the network fails on have an
            error; the others are not affected.

        Raises:
            ValueError: files are given, but the model does not take images of 1
                or 3 channels.
        """
        if isinstance(values, list):
            if values and not self.takes_files:
                raise ValueError(
                    f"The model {self._path} does not accept images with 1 or "
                    "3 channels."
                )
            return self._answers(values, threshold)
        raw = RawInputs(self._kind)
        good, rows, errors = raw.check_rows(values)
        raw.finish()
        found = dict(zip(good, self._answers(rows, threshold), strict=True))
        return [
            found[place] if place in found else Answer(error=errors[place])
            for place in range(len(values))
        ]

    def _answers(self, values, threshold):
        """As `classify`, of rows that the model takes."""
        import tensorflow as tf

        if not len(values):
            return []
        try:
            found = {n: x.numpy() for n, x in self._asked(values).items()}
        except tf.errors.OpError as error:
            if len(values) == 1:
                return [Answer(error=f"the network failed: {_line_of(error)}")]
            # By halves, one row among thousands is found in few steps.
            middle = len(values) // 2
            parts = (values[:middle], values[middle:])
            return [one for x in parts for one in self._answers(x, threshold)]
        if threshold is not None:
            _decide_again(found, np.float32(threshold))
        class_ids = found["class_id"].tolist()
        names = (*self.class_names, UNKNOWN_NAME)  # unknown is -1
        answers = map(
            Answer,
            [names[i] for i in class_ids],
            class_ids,
            [i == UNKNOWN for i in class_ids],
            found["unknown_score"].tolist(),
            found["p_value"].tolist(),
            found["threshold"].tolist(),
            [names[i] for i in found["predicted_class_id"].tolist()],
            [""] * len(class_ids),
            found["probabilities"].tolist(),
        )
        return [
            one if is_valid else Answer(error=_error_of(value))
            for one, is_valid, value in zip(
                answers, found["is_valid"], values, strict=True
            )
        ]

    def _asked(self, values):
        import tensorflow as tf

        if isinstance(values, list):
            return self._signature(_FILES)(tf.constant(values))
        if values.dtype == np.uint8 and len(self.input_shape) == 3:
            return self._signature(_PIXELS)(tf.constant(values))
        if not self.takes_texts:
            values = values.astype(self._kind.dtype)
        return self._signature(_ANY)(tf.constant(values))

    def features(self, values: list[bytes] | np.ndarray) -> np.ndarray:
        """(B, E) float32 features, by which inputs are grouped.

        Args:
            values: as for `classify`, only inputs without an error; B >= 1. The
                classifier must have been loaded `with_features`.
        """
        import tensorflow as tf

        kind = "files" if isinstance(values, list) else "inputs"
        if kind == "inputs" and not self.takes_texts:
            values = np.asarray(values).astype(self._kind.dtype)
        return self._embeddings[kind](tf.constant(values)).numpy()

    def nearest(
        self, answer: Answer, count: int = 3
    ) -> list[tuple[str, float]]:
        """The most likely classes of an input.

        Args:
            answer: `Answer` without an error.
            count: how many at most.

        Returns:
            Pairs of a class name and its probability, the most likely first.
        """
        ranked = sorted(
            zip(self.class_names, answer.probabilities, strict=True),
            key=lambda pair: -pair[1],
        )
        return ranked[:count]


def _error_of(value):
    """Why an input has no answer."""
    if isinstance(value, bytes):
        return problem_of(value) or _NOT_ASKED
    return _NOT_FINITE


def _line_of(error):
    """What TensorFlow says, without where in the graph."""
    return next(filter(None, map(str.strip, error.message.splitlines())), "")


def _decide_again(found, threshold):
    predicted = found["predicted_class_id"]
    found["class_id"] = rule.decide(
        found["unknown_score"], predicted, threshold
    )
    found["threshold"] = np.full(len(predicted), threshold)


def find_model(path: str) -> str:
    """Path of the SavedModel's folder or the `.keras` file that is meant.

    Raises:
        ValueError: there is none.
    """
    if os.path.isfile(path):
        if path.endswith(".keras"):
            return path
        raise ValueError(
            f"{path} is not a model: it is neither a .keras file nor a folder."
        )
    if not os.path.isdir(path):
        raise ValueError(f"Model not found: {path}.")
    if os.path.exists(os.path.join(path, _SAVED_MODEL)):
        return path
    own = os.path.join(path, "model.keras")
    if os.path.exists(own):
        return own
    versions = [
        name
        for name in os.listdir(path)
        if name.isdecimal()
        and os.path.exists(os.path.join(path, name, _SAVED_MODEL))
    ]
    if versions:
        return os.path.join(path, max(versions, key=int))
    raise ValueError(
        f"The folder {path} contains neither {_SAVED_MODEL} nor model.keras, "
        "nor a version of a served model."
    )


def columns_of_run(path: Path) -> tuple[str, ...]:
    """The columns that the run of a model says, or what was enrolled in it.

    Empty if there is no run, or its data were no table.

    Args:
        path: of a run's `model.keras`, or of a version in its `serving` folder.
    """
    path = pathlib.Path(path).absolute()
    # Beside model.keras, or two folders above serving/1.
    for folder in path.parents[:2]:
        for name in ("config.json", "enrolled.json"):
            try:
                content = json.loads((folder / name).read_bytes())
                return tuple(content["data"]["input_columns"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return ()


def _of_saved_model(path):
    import tensorflow as tf

    description = os.path.join(path, "assets", "model.json")
    described = {}
    if os.path.exists(description):
        with open(description, "rb") as file:
            described = json.load(file)
    if not described.keys() >= {"class_names", *_INPUTS}:
        raise ValueError(
            f"{path} was not exported by this version of cac_tf: its "
            "assets/model.json does not describe the inputs. Export it "
            "again, or give the .keras file."
        )
    loaded = tf.saved_model.load(path)

    def signature(name):
        # From the model: its variables live as long as it does.
        return loaded.signatures.get(name)

    return signature, described


def _of_keras(path, with_features):
    from cac_tf.export.embedding_graphs import embedding_graphs
    from cac_tf.export.saved_model import graphs_and_description
    from cac_tf.models.saving import load_model

    model = load_model(path)
    graphs, description = graphs_and_description(model)
    embeddings = embedding_graphs(model) if with_features else _NONE
    return graphs.get, description, embeddings
