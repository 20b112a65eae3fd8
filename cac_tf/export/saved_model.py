# SPDX-License-Identifier: Apache-2.0
"""An open-set classifier as a SavedModel."""

import operator
import os
import tempfile
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from cac_tf import atomic_files
from cac_tf import keras_private
from cac_tf import lazy
from cac_tf import ops as fused_ops
from cac_tf.annotations import Path
from cac_tf.export.defaults import DEFAULT_MAX_PIXELS
from cac_tf.export.signatures import LARGEST
from cac_tf.export.signatures import Answering
from cac_tf.export.signatures import signatures as signatures_of
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models.open_set_classifier import OpenSetClassifier
from cac_tf.version import __version__


def write_saved_model(
    model: OpenSetClassifier,
    path: Path,
    *,
    version: int = 0,
    allow_uncalibrated: bool = False,
    max_image_pixels: int = DEFAULT_MAX_PIXELS,
    verbose: bool = False,
) -> None:
    """Writes a SavedModel with the rejection rule built in.

    The graph holds stock TensorFlow operations only. `assets/labels.txt` has
    the class names, one per line, and `assets/model.json` these, the
    threshold, the score and the shape of the inputs.

    Args:
        model: `OpenSetClassifier` with a threshold.
        path: folder to write. It is written under a temporary name and then
            renamed, so it is never incomplete.
        version: number that every answer carries as `model_version`.
        allow_uncalibrated: whether a model without threshold is exported
            with the largest float32 in its place, so that nothing is rejected.
        max_image_pixels: largest height times width of an encoded image; one
            whose header claims more is not decoded.
        verbose: whether Keras prints what it wrote.

    Raises:
        ValueError: no threshold, or weights that are NaN or infinite.
        FileExistsError: `path` exists.
        RuntimeError: Keras runs on another backend than TensorFlow, a shared
            classifier was trained on, or it holds a compiled function with a
            fused operation, which no server knows.

    Example:

    >>> import os, tempfile, keras, numpy as np, tensorflow as tf, cac_tf
    >>> classifier = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(classifier, ["left", "right"])
    >>> path = os.path.join(tempfile.mkdtemp(), "saved")
    >>> write_saved_model(model, path, allow_uncalibrated=True)
    >>> served = tf.saved_model.load(path).signatures["serving_default"]
    >>> out = served(inputs=tf.constant([[1.0, 2.0], [np.nan, 0.0]]))
    >>> out["is_valid"].numpy().tolist()
    [True, False]
    """
    path = os.fspath(path)
    answering = answering_of(
        model, version, allow_uncalibrated, max_image_pixels
    )
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with atomic_files.new_folder(path) as temporary:
        save_into(temporary, model, answering, verbose)


def save_into(
    folder: str,
    model: OpenSetClassifier,
    answering: Answering,
    verbose: bool = False,
    signatures: Iterable[str] | None = None,
    input_columns: Iterable[str] = (),
) -> list[str]:
    """Writes the files of a SavedModel into an empty folder.

    Args:
        folder: path.
        model: `OpenSetClassifier`.
        answering: `Answering` of the model.
        verbose: whether Keras prints what it wrote.
        signatures: names of those to write; None: all that the model has.
        input_columns: of a table, those that the inputs are made of.

    Returns:
        Names of the signatures.
    """
    import tensorflow as tf

    offered = signatures_of(model, answering)
    if signatures is not None:
        offered = {name: offered[name] for name in signatures}
    archive = keras.export.ExportArchive()
    with (
        tempfile.TemporaryDirectory() as assets,
        fused_ops.stock_operations(),
    ):
        labels = os.path.join(assets, "labels.txt")
        atomic_files.write_text(labels, "\n".join(model.class_names) + "\n")
        # No signature uses it, but Keras exports only the files of tables,
        # not an asset by itself.
        holder = tf.Module()
        holder.labels = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                labels,
                key_dtype=tf.int64,
                key_index=tf.lookup.TextFileIndex.LINE_NUMBER,
                value_dtype=tf.string,
                value_index=tf.lookup.TextFileIndex.WHOLE_LINE,
            ),
            default_value=UNKNOWN_NAME,
        )
        holder.tables = keras_private.tables_inside(model)
        archive.track(holder)
        for name, (function, specs) in offered.items():
            archive.add_endpoint(name, function, input_signature=specs)
        archive.write_out(folder, verbose=bool(verbose))
    atomic_files.write_json(
        os.path.join(folder, "assets", "model.json"),
        {
            **_description(model, answering),
            "input_columns": list(input_columns),
        },
    )
    _finish_graph(folder)
    return list(offered)


def _description(model, answering):
    return {
        "class_names": list(model.class_names),
        "threshold": answering.threshold.tolist(),
        "score": model.score.name,
        "input_shape": list(model.inputs_taken.fixed_shape),
        "input_dtype": model.inputs_taken.dtype,
        "inputs_are_pixels": model.inputs_taken.are_pixels,
        "input_ids": model.inputs_taken.num_ids,
        "version": answering.version,
        "cac_tf": __version__,
    }


def graphs_and_description(
    model: OpenSetClassifier,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a model's SavedModel would hold, without writing it.

    Args:
        model: `OpenSetClassifier` with a threshold.

    Returns:
        Dict of compiled functions by the names of the signatures, and the
        content of `assets/model.json`.

    Raises:
        ValueError, RuntimeError: as `write_saved_model`.
    """
    lazy.require("tensorflow", "tensorflow")
    import tensorflow as tf

    answering = answering_of(model, 0, False)
    graphs = {
        name: tf.function(function, input_signature=specs, autograph=False)
        for name, (function, specs) in signatures_of(model, answering).items()
    }
    return graphs, _description(model, answering)


def answering_of(
    model: OpenSetClassifier,
    version: int,
    allow_uncalibrated: bool,
    max_image_pixels: int = DEFAULT_MAX_PIXELS,
) -> Answering:
    """`Answering` of a model that can be exported.

    Raises:
        ValueError: no threshold, or weights that are NaN or infinite.
        RuntimeError: Keras runs on another backend than TensorFlow, or a
            shared classifier was trained on.
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "Models can be exported, and exported models run, only with "
            "TensorFlow: load the saved .keras file with "
            "KERAS_BACKEND=tensorflow. (Keras is running on "
            f"{keras.backend.backend()}.)"
        )
    threshold: Any
    if model.threshold is None and allow_uncalibrated:
        threshold = LARGEST
    else:
        threshold = model.require_threshold()
    model.require_same_classifier()
    _require_finite_weights(model)
    return Answering(
        np.float32(threshold),
        operator.index(version),
        max_image_pixels,
        model.calibration,
    )


def _require_finite_weights(model):
    # (The threshold is NaN while there is none, and checked by itself.)
    of_threshold = {id(variable) for variable in model.decision.weights}
    for variable in model.weights:
        if id(variable) in of_threshold or "float" not in str(variable.dtype):
            continue
        values = np.float32(keras.ops.convert_to_numpy(variable))
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise ValueError(
                f"The weight {variable.path} is NaN or infinite in {bad} of "
                f"{values.size} places, so the model cannot be used: retrain "
                "the classifier, for example with a lower learning rate."
            )


def _finish_graph(path):
    """Names the Classify API's method, and refuses our own operations."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = os.path.join(path, "saved_model.pb")
    saved_model = saved_model_pb2.SavedModel()
    with open(file, "rb") as stream:
        saved_model.ParseFromString(stream.read())
    for meta_graph in saved_model.meta_graphs:
        _require_stock_operations(meta_graph.graph_def)
        classify = meta_graph.signature_def.get("classify")
        if classify is not None:
            # TensorFlow gives all of them the method "predict".
            classify.method_name = "tensorflow/serving/classify"
    with open(file, "wb") as stream:
        stream.write(saved_model.SerializeToString(deterministic=True))
    # It belongs to the file as it was; loaders do not need it.
    os.unlink(os.path.join(path, "fingerprint.pb"))


def _require_stock_operations(graph):
    nodes = [
        *graph.node,
        *(n for f in graph.library.function for n in f.node_def),
    ]
    own = sorted({n.op for n in nodes if n.op.startswith("CacTf>")})
    if own:
        raise RuntimeError(
            f"The exported graph contains {', '.join(own)}, which a server "
            "does not have: a layer of the model was compiled with the fused "
            "operations. Set CAC_TF_DISABLE_FUSED_OPS=1, load the model and "
            "export it again."
        )
