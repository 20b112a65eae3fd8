# SPDX-License-Identifier: Apache-2.0
"""The folder that TF Serving polls: one sub-folder per version."""

import contextlib
import json
import numbers
import os
import re
import string
from collections.abc import Sequence
from typing import cast

import numpy as np

from cac_tf import atomic_files
from cac_tf import file_lock
from cac_tf import lazy
from cac_tf.annotations import Path
from cac_tf.data.image_formats import NAMES
from cac_tf.export import warm_up
from cac_tf.export.defaults import DEFAULT_BATCH_SIZES
from cac_tf.export.defaults import DEFAULT_MAX_PIXELS
from cac_tf.export.saved_model import answering_of
from cac_tf.export.saved_model import save_into
from cac_tf.export.signatures import IMAGE_FEATURE
from cac_tf.export.signatures import TEXT_FEATURE
from cac_tf.export.signatures import VECTOR_FEATURE
from cac_tf.export.signatures import name_of_inputs
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.plain_text import for_markdown

_README = os.path.join(os.path.dirname(__file__), "model_folder.md")
# Where the server's image expects models.
_MOUNTED_AT = "/models"


def write_model_folder(
    model: OpenSetClassifier,
    directory: Path,
    version: int,
    *,
    name: str | None = None,
    batch_sizes: Sequence[int] | None = None,
    allow_uncalibrated: bool = False,
    max_image_pixels: int = DEFAULT_MAX_PIXELS,
    input_columns: Sequence[str] = (),
) -> str:
    """Exports a calibrated model as one version of a TF Serving model.

    The folder holds everything a server needs: `<version>/` with the
    SavedModel, `assets/labels.txt` and warm-up requests; `models.config` and
    `batching.config`, which are left unchanged if they exist; and, for the
    highest version, a `README.md` with the command that starts the server and
    sample requests in `requests/`.

    A version is written under a temporary name and renamed, so a polling server
    never sees half a model (it looks only at folders whose name is a number).
    An existing version is never overwritten. One process at a time exports into
    a folder; others wait, and the remains of a killed process are removed.

    Every signature takes a batch of rows and returns, for each row, `class_id`
    (-1: unknown), `label` ("unknown" when rejected), `is_unknown`,
    `unknown_score`, `predicted_class_id`, `gamma`, `distances`, `probabilities`
    (softmin), `threshold`, `model_version` and `is_valid`:

    * `serving_default`: `images`, (B, H, W, C) float32 pixels in 0...255; or
      `inputs`, the raw inputs of a model that does not take images, as float32,
      the integers that it takes, or (B,) texts in UTF-8;
    * `uint8_images`: the same as uint8;
    * `encoded_images`: (B,) JPEG, PNG, WebP or BMP files of any size;
    * `with_threshold`: `images` or `inputs`, and `threshold`, (B,) float32;
    * `classify`: `inputs`, (B,) tf.Examples with the feature `image/encoded`
      (or `text` or `features`, if inputs are not images); it returns `classes`
      and `scores` as TF Serving's Classify API does.

    (If the score reads no distances, `probabilities` are the softmax of the
    logits.)

    A row has `is_valid` false and is rejected if it is not an image, holds NaN
    or infinity, or has a threshold that is not finite or is below the score's
    smallest value; other rows are not affected. All numbers are finite.

    Args:
        model: `OpenSetClassifier` with a threshold.
        directory: the model's folder; created if it does not exist.
        version: integer >= 1.
        name: name under which the model is served; by default the one in
            `models.config`, otherwise the folder's.
        batch_sizes: sizes of the batches that the server forms from several
            requests, ascending; each is warmed up. By default those in
            `batching.config`, otherwise 1, 8, 32.
        allow_uncalibrated: whether to export a model without a threshold, with
            the largest float32 in its place, so that nothing is rejected.
        max_image_pixels: largest height times width of an encoded image; one
            whose header claims more becomes an invalid row.
        input_columns: names of the columns of a table that the inputs are made
            of, in this order; `assets/model.json` says them to `cac-predict`.

    Returns:
        Path of the version's folder.

    Raises:
        ValueError: a version that is not a positive integer, batch sizes that
            do not ascend, a name that cannot be part of a URL, a name or sizes
            that differ from the folder's configuration, or a model that cannot
            be exported (no threshold; inputs without a fixed size).
        RuntimeError: Keras is not running on TensorFlow, a shared classifier
            was trained further, or it holds a fused operation, which no server
            knows.
        FileExistsError: the version already exists.
        OSError: the folder cannot be written.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> classifier = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    >>> folder = os.path.join(tempfile.mkdtemp(), "sides")
    >>> path = write_model_folder(model, folder, 1, allow_uncalibrated=True)
    >>> sorted(os.listdir(folder))
    ['1', 'README.md', 'batching.config', 'models.config', 'requests']
    """
    lazy.require("tensorflow_serving", "serving")
    check_version(version)
    _check_whole(max_image_pixels, "max_image_pixels")
    directory = os.path.abspath(os.fspath(directory))
    name, batch_sizes = _settings(directory, name, batch_sizes)
    for size in batch_sizes:
        _check_whole(size, "Every batch size")
    if not batch_sizes or batch_sizes != sorted(set(batch_sizes)):
        raise ValueError(
            f"batch_sizes must be in ascending order; got {batch_sizes}."
        )
    if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
        raise ValueError(
            "The name of a served model may contain only letters, digits and "
            f"_ . -; got {name!r}. Choose another one with name=<name>."
        )
    target = os.path.join(directory, str(version))
    if os.path.exists(target):
        raise FileExistsError(
            f"{target} already exists; a served version is never overwritten. "
            "Choose a higher version."
        )
    taken = model.inputs_taken
    if None in taken.fixed_shape:
        raise ValueError(
            "A served model needs inputs of a fixed size so that requests "
            f"can be batched; this one takes {taken.shape}. Let the "
            "classifier begin with layers.ImagePreprocessing(height, width)."
        )
    answering = answering_of(
        model, version, allow_uncalibrated, max_image_pixels
    )
    shape = cast("tuple[int, ...]", taken.fixed_shape)
    with (
        _alone_in(directory),
        atomic_files.new_folder(target) as temporary,
    ):
        signatures = save_into(
            temporary, model, answering, input_columns=input_columns
        )
        warm_up.write_warm_up_requests(
            temporary,
            signatures,
            shape,
            name,
            batch_sizes,
            taken.dtype,
        )
        _write_configurations(directory, name, batch_sizes)
        if version > max(_versions(directory), default=0):
            _write_requests(directory, signatures, model)
            _write_readme(
                directory, model, shape, name, version, signatures, batch_sizes
            )
    return target


def _versions(directory):
    return [int(entry) for entry in os.listdir(directory) if entry.isdigit()]


def _settings(directory, name, batch_sizes):
    """Name and batch sizes: as given, as configured, or the defaults."""
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import (
        ModelServerConfig,
    )

    configured_name = configured_sizes = None
    text = _text_of(os.path.join(directory, "models.config"))
    if text is not None:
        config = text_format.Parse(text, ModelServerConfig())
        names = [model.name for model in config.model_config_list.config]
        # With several, it is unknown which one is this.
        configured_name = names[0] if len(names) == 1 else None
    text = _text_of(os.path.join(directory, "batching.config"))
    if text is not None:
        largest = re.search(r"max_batch_size\s*\{\s*value\s*:\s*(\d+)", text)
        # (No Python package has the message type of this file.)
        sizes = re.findall(r"^\s*allowed_batch_sizes\s*:\s*(\d+)", text, re.M)
        sizes = sizes or ["1", *(largest.groups() if largest else ())]
        configured_sizes = sorted(set(map(int, sizes)))
    for what, asked, configured in (
        ("name", name, configured_name),
        ("batch_sizes", batch_sizes and list(batch_sizes), configured_sizes),
    ):
        if asked and configured and asked != configured:
            raise ValueError(
                f"The configuration in {directory} has the {what} "
                f"{configured!r}, but {asked!r} was given. Leave it out, or "
                "change the configuration first."
            )
    if batch_sizes is None:
        batch_sizes = configured_sizes or DEFAULT_BATCH_SIZES
    name = name or configured_name or os.path.basename(directory)
    return name, list(batch_sizes)


def _text_of(path):
    """Contents of a text file, or None where there is none."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_version(version: int) -> None:
    """Raises ValueError unless `version` is a whole number >= 1."""
    _check_whole(version, "version")


def _check_whole(value, what):
    is_whole = isinstance(value, numbers.Integral)
    if not is_whole or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"{what} must be a whole number of at least 1; got {value!r}."
        )


@contextlib.contextmanager
def _alone_in(directory):
    """A context in which only this process exports into a folder.

    So whatever lies there half written was left by a process that was killed.

    Raises:
        OSError: with the folder's name, also where its disk is full.
    """
    lock_file = os.path.join(directory, ".cac_tf-export.lock")
    try:
        os.makedirs(directory, exist_ok=True)
        with file_lock.writing(directory, lock_file, waits=True):
            atomic_files.remove_leftovers(directory)
            yield
    except FileExistsError:
        raise
    except OSError as error:
        inside = os.path.join(os.path.abspath(directory), "")
        if str(error.filename).startswith(inside):
            raise  # It is told of already.
        raise OSError(
            f"Cannot write to {directory}: {error.strerror or error}."
        ) from error


def _write_configurations(directory, name, batch_sizes):
    """The server's settings; a deployer's own are left alone."""
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import (
        ModelServerConfig,
    )

    config = ModelServerConfig()
    config.model_config_list.config.add(
        name=name,
        base_path=f"{_MOUNTED_AT}/{name}",
        model_platform="tensorflow",
    )
    batching = [
        "# A batch is padded to one of the allowed sizes; each was warmed",
        "# up. num_batch_threads is by default the number of cores.",
        f"max_batch_size {{ value: {batch_sizes[-1]} }}",
        "batch_timeout_micros { value: 1000 }",
        "max_enqueued_batches { value: 100 }",
        *(f"allowed_batch_sizes: {size}" for size in batch_sizes),
    ]
    for file, text in (
        ("models.config", text_format.MessageToString(config)),
        ("batching.config", "\n".join(batching) + "\n"),
    ):
        path = os.path.join(directory, file)
        if not os.path.exists(path):
            atomic_files.write_text(path, text)


def _write_requests(directory, signatures, model):
    """One request per signature, for the REST API."""
    folder = os.path.join(directory, "requests")
    os.makedirs(folder, exist_ok=True)
    for signature in signatures:
        request = warm_up.example_json(
            signature, model.inputs_taken.fixed_shape, model.inputs_taken.dtype
        )
        text = json.dumps(request)
        path = os.path.join(folder, f"{signature}.json")
        atomic_files.write_text(path, text + "\n")


def readme_template() -> string.Template:
    """The folder's README, with placeholders for what differs."""
    with open(_README, encoding="utf-8") as file:
        return string.Template(file.read())


def _rule(model):
    """When the model rejects an input, in a sentence."""
    threshold = model.threshold
    if threshold is None:
        return (
            "**This version has not been calibrated, so it rejects no valid "
            "input: its threshold is the largest float32.** Calibrate the "
            "model and export a new version."
        )
    if np.ndim(threshold):
        own = zip(model.class_names, threshold, strict=True)
        of_classes = ", ".join(
            f"{for_markdown(name)} {value:.6g}" for name, value in own
        )
        limit = f"threshold of its predicted class: {of_classes}"
    else:
        limit = f"threshold {threshold:.6g}"
    return (
        f"An input is rejected when its unknown score ({model.score.name}) "
        f"exceeds the {limit}."
    )


def _write_readme(
    directory, model, shape, name, version, signatures, batch_sizes
):
    import tensorflow as tf

    kind, dtype = model.inputs_taken, model.inputs_taken.dtype
    batch_of = " x ".join(map(str, ("batch", *shape)))
    takes_files = "encoded_images" in signatures
    inputs = name_of_inputs(model.inputs_taken.fixed_shape)
    pixels = ", pixels in 0...255" if "uint8_images" in signatures else ""
    example = f"`{VECTOR_FEATURE}`, {' x '.join(map(str, shape))} numbers"
    rows = f"rows = [...]  # {batch_of}"
    if takes_files:
        example = f"`{IMAGE_FEATURE}`, an image file"
        rows = 'rows = [open("photo.jpg", "rb").read()]'
    elif kind.are_texts:
        example, rows = f"`{TEXT_FEATURE}`", 'rows = ["a text", "another"]'
    takes = {
        "serving_default": f"`{inputs}`: {dtype}, {batch_of}{pixels}",
        "uint8_images": f"`images`: uint8, {batch_of}",
        "encoded_images": f"`images`: a batch of {NAMES} files, of any size",
        "with_threshold": f"`{inputs}` as in `serving_default`, and "
        "`threshold`: float32, one per row",
        "classify": f"Classify API: tf.Examples with the feature {example}",
    }
    allowed = "it must be finite"
    if kind.are_pixels:
        allowed = "it must be in 0...255"
    elif kind.num_ids is not None:
        allowed = f"it must be in 0...{kind.num_ids - 1}"
    elif kind.are_texts:
        allowed = "it must be text"
    untrusted = (
        " Let untrusted clients use only `encoded_images`: its rows cannot "
        "have a wrong size."
    )
    text = readme_template().substitute(
        allowed=allowed,
        inputs=inputs,
        untrusted=untrusted if takes_files else "",
        name=name,
        version=version,
        rule=_rule(model),
        classes=", ".join(map(for_markdown, model.class_names)),
        folder=f"{_MOUNTED_AT}/{name}",
        tensorflow=tf.__version__,
        server=f"{tf.__version__.rpartition('.')[0]}.0",
        largest_batch=batch_sizes[-1],
        signatures="\n".join(f"| `{s}` | {takes[s]} |" for s in signatures),
        example="encoded_images" if takes_files else "serving_default",
        rows=rows,
        dtype="" if takes_files else f", tf.{dtype}",
    )
    atomic_files.write_text(os.path.join(directory, "README.md"), text)
