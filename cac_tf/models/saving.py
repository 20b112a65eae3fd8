# SPDX-License-Identifier: Apache-2.0
"""Loading an open-set classifier from the file that it was saved to."""

import os
from collections.abc import Mapping
from typing import Any

from cac_tf.annotations import Path
from cac_tf.models.keras_file import load_keras_file
from cac_tf.models.open_set_classifier import OpenSetClassifier


def load_model(
    path: Path, custom_objects: Mapping[str, Any] | None = None
) -> OpenSetClassifier:
    """Loads an `OpenSetClassifier` from the file that `save` wrote.

    The classifier is loaded for prediction only, without the optimizer, loss
    and metrics that it may have been compiled with, so their code is not
    needed.

    `keras.saving.load_model` also works, without the size checks, after `from
    cac_tf import OpenSetClassifier`: it knows only classes that were imported,
    and `import cac_tf` alone imports none.

    Args:
        path: a `.keras` file.
        custom_objects: your own classes and functions in the classifier, by
            name, if they are not registered.

    Returns:
        The model: classifier, centers, score, threshold, class names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the path is a folder; or the file is truncated or damaged,
            would expand to far more than its size, needs code that is missing,
            or does not hold an `OpenSetClassifier`; the message says which.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> classifier = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> cac_tf.load_model(path).class_names
    ('left', 'right')
    """
    model = load_keras_file(path, custom_objects)
    if not isinstance(model, OpenSetClassifier):
        raise ValueError(
            f"{os.fspath(path)} contains a {type(model).__name__}, not an "
            "OpenSetClassifier."
        )
    return model
