# SPDX-License-Identifier: Apache-2.0
"""A classifier for image files: a SavedModel, or a model's own graph.

A SavedModel is asked by TensorFlow alone. A `.keras` file is asked by the same
graph that its export would have, so both give the same answers.
"""

import json
import os
import typing

import numpy as np

from cac_tf.decision import rule
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME

_SAVED_MODEL = "saved_model.pb"
_SIGNATURE = "encoded_images"
_NOT_READABLE = "no JPEG, PNG or WebP image that can be read, or too large"


class FileAnswer(typing.NamedTuple):
    """What a classifier says of one file; with an `error`, nothing else."""

    error: str = ""
    class_id: int | None = None  # -1 for unknown
    label: str = ""  # class name, or "unknown"
    is_unknown: bool | None = None
    unknown_score: float | None = None
    threshold: float | None = None
    predicted_class: str = ""  # before rejection
    nearest: tuple = ()  # pairs of name and probability, the likeliest first


class FileClassifier:
    """Classifies image files, many at a time.

    Args:
        function: from (B,) contents of files to the answers of the signature
            `encoded_images`.
        class_names: N names.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> network = keras.Sequential([keras.Input([8, 8, 1]),
    ...     keras.layers.Flatten(), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(network, ["left", "right"])
    >>> model.build((None, 8, 8, 1))
    >>> model.set_threshold(1e6)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> (answer,) = FileClassifier.load(path).classify([b"no image"])
    >>> answer.error
    'no JPEG, PNG or WebP image that can be read, or too large'
    """

    def __init__(self, function, class_names):
        self._function, self.class_names = function, tuple(class_names)

    @classmethod
    def load(cls, path):
        """The classifier of a file or folder.

        Args:
            path: a `.keras` file, the folder of a run, a SavedModel, or a
                model folder of TensorFlow Serving, whose newest version is
                taken.

        Raises:
            ValueError: something else, a model without a threshold, or one
                that takes no images.
            RuntimeError: a `.keras` file, and Keras runs on another backend
                than TensorFlow.
        """
        path = find_model(path)
        if os.path.basename(path).endswith(".keras"):
            return cls(*_of_keras(path))
        return cls(*_of_saved_model(path))

    def classify(self, files, threshold=None):
        """Answers for the contents of files.

        Args:
            files: list of bytes.
            threshold: theta in place of the model's own.

        Returns:
            List of `FileAnswer`.
        """
        import tensorflow as tf

        if not files:
            return []
        found = {
            name: value.numpy()
            for name, value in self._function(tf.constant(files)).items()
        }
        if threshold is not None:
            _decide_again(found, np.float32(threshold))
        return [self._answer(found, row) for row in range(len(files))]

    def _answer(self, found, row):
        if not found["is_valid"][row]:
            return FileAnswer(error=_NOT_READABLE)
        probabilities = found["probabilities"][row]
        order = np.argsort(-probabilities, kind="stable")[:3]
        class_id = int(found["class_id"][row])
        is_unknown = class_id == UNKNOWN
        predicted = self.class_names[found["predicted_class_id"][row]]
        return FileAnswer(
            class_id=class_id,
            label=UNKNOWN_NAME if is_unknown else self.class_names[class_id],
            is_unknown=is_unknown,
            unknown_score=float(found["unknown_score"][row]),
            threshold=float(found["threshold"][row]),
            predicted_class=predicted,
            nearest=tuple(
                (self.class_names[i], float(probabilities[i])) for i in order
            ),
        )


def _decide_again(found, threshold):
    predicted = found["predicted_class_id"]
    found["class_id"] = rule.decide(
        found["unknown_score"], predicted, threshold
    )
    found["threshold"] = np.full(len(predicted), threshold)


def find_model(path):
    """Path of the SavedModel's folder or the `.keras` file that is meant.

    Raises:
        ValueError: there is none.
    """
    if os.path.isfile(path):
        if path.endswith(".keras"):
            return path
        raise ValueError(
            f"{path} is no model: neither a .keras file nor a folder."
        )
    if not os.path.isdir(path):
        raise ValueError(f"There is no model {path}.")
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
        f"The folder {path} holds neither {_SAVED_MODEL} nor model.keras, nor "
        "a version of a served model."
    )


def _of_saved_model(path):
    import tensorflow as tf

    description = os.path.join(path, "assets", "model.json")
    if not os.path.exists(description):
        raise ValueError(
            f"{path} was not exported by this version of cac_tf: it has no "
            "assets/model.json. Export it again, or give the .keras file."
        )
    with open(description, "rb") as file:
        class_names = json.load(file)["class_names"]
    loaded = tf.saved_model.load(path)
    if _SIGNATURE not in loaded.signatures:
        raise ValueError(_takes_no_images(path))

    def function(files):
        # From the model: its variables live as long as it does.
        return loaded.signatures[_SIGNATURE](images=files)

    return function, class_names


def _of_keras(path):
    from cac_tf.export import graph_of_signature
    from cac_tf.models import load_model

    model = load_model(path)
    function = graph_of_signature(model, _SIGNATURE)
    if function is None:
        raise ValueError(_takes_no_images(path))
    return function, model.class_names


def _takes_no_images(path):
    return f"The model {path} does not take images of 1 or 3 channels."
