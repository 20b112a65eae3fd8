# SPDX-License-Identifier: Apache-2.0
"""All inputs of some files at once, as a model of this process takes them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from cac_tf.annotations import Path
from cac_tf.batch.classifier import Classifier
from cac_tf.batch.inputs import blocks_of
from cac_tf.batch.inputs import said_of
from cac_tf.batch.paths import paths_of
from cac_tf.data.image_file import read_image
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.models.raw_inputs import takes_encoded_images


def inputs_in(
    inputs: Iterable[str],
    model: OpenSetClassifier,
    path: Path,
    image_column: str | None = None,
) -> np.ndarray:
    """The inputs in files, folders and patterns, as `cac-predict` reads them.

    Args:
        inputs: as of `paths_of`.
        model: what takes them.
        path: of its file, beside which its run says what columns it reads.
        image_column: as of `blocks_of`.

    Returns:
        (n, ...) array of raw inputs.

    Raises:
        ValueError: there are none, or one that cannot be read; the message
            names the first and says how many there are.
    """
    classifier = Classifier.taking_inputs_of(
        model.inputs_taken, model.class_names, path
    )
    read: list[Any] = []
    errors: dict[str, str] = {}
    for block in blocks_of(paths_of(inputs), image=image_column):
        try:
            for chunk in block.chunks(classifier):
                errors |= {chunk.keys[k]: e for k, e in chunk.errors.items()}
                if isinstance(chunk.values, list):
                    _add_images(read, errors, chunk, model)
                elif len(chunk.errors) < len(chunk.keys):
                    read.append(np.asarray(chunk.values))
        # Readers of damaged files raise of any kind.
        except Exception as error:
            errors[block.files[0]] = said_of(error)
    if errors:
        (key, text), count = next(iter(errors.items())), len(errors)
        which = "One input" if count == 1 else f"{count} inputs"
        raise ValueError(f"{which} cannot be read; {key}: {text}")
    if not read:
        raise ValueError("No inputs were given.")
    return np.concatenate(read)


def _add_images(read, errors, chunk, model):
    kind = model.inputs_taken
    if not takes_encoded_images(kind.fixed_shape):
        errors[chunk.keys[0]] = (
            "the model does not accept images with 1 or 3 channels"
        )
        return
    *size, channels = kind.fixed_shape
    for place, content in enumerate(chunk.values):
        if place in chunk.errors:
            continue
        try:
            image, _ = read_image(
                content, tuple(size), channels, kind.interpolation
            )
            read.append(image[np.newaxis])
        except (OSError, ValueError) as error:
            errors[chunk.keys[place]] = said_of(error)
