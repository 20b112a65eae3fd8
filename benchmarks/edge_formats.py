# SPDX-License-Identifier: Apache-2.0
"""How well files for LiteRT and ONNX Runtime preserve a model, on digits.

    python benchmarks/edge_formats.py

Trains the five `neal` trials on scikit-learn's digits as `cac-train` does,
writes each model as float LiteRT, int8 LiteRT (dynamic range) and ONNX, and
compares their answers for all test images with those of the SavedModel: sizes,
AUROC, accuracy, largest differences, and decisions that differ.
"""

import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from cac_tf import atomic_files
from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.export.edge_formats import write_litert
from cac_tf.export.edge_formats import write_onnx
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.metrics import auroc
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

RESULT = pathlib.Path(__file__).parent / "results" / "edge_formats.json"
TRIALS = range(5)


def train(dataset, folder):
    """A calibrated model by the preset's recipe, seed 0."""
    method = methods.get("cac")
    recipe = method.recipe(**method.preset("digits"))
    run = TrainingRun(Runtime(0), os.path.join(folder, "checkpoints"))
    classifier = method.train(dataset, recipe, run)
    model = open_set_classifier(classifier, dataset, "gamma")
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    return model


def ask_saved_model(path, images):
    """Answers of the SavedModel's default signature."""
    ask = tf.saved_model.load(path).signatures["serving_default"]
    return {k: v.numpy() for k, v in ask(images=tf.constant(images)).items()}


def ask_litert(path, images):
    """Answers under LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(path).get_signature_runner()(images=images)


def ask_onnx(path, images):
    """Answers under ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"images": images}), strict=True))


def compare(answer, reference, labels, path):
    """Size, quality, and how far the answers are from the SavedModel's."""
    is_known = labels >= 0
    score = answer["unknown_score"]
    predicted = answer["predicted_class_id"]
    return {
        "bytes": os.path.getsize(path),
        "auroc": auroc(score[is_known], score[~is_known]),
        "accuracy": float((predicted == labels)[is_known].mean()),
        "largest_difference": {
            name: float(np.abs(answer[name] - reference[name]).max())
            for name in ("distances", "gamma", "probabilities")
        },
        "other_decisions": int(
            (answer["class_id"] != reference["class_id"]).sum()
        ),
        "images": len(labels),
    }


def run_trial(trial):
    """All formats of one model."""
    dataset = load_open_set_dataset("digits", trial=trial)
    images = np.float32(
        np.concatenate([dataset.known_test.images, dataset.unknown_test.images])
    )
    labels = np.concatenate(
        [dataset.known_test.labels, -np.ones(dataset.unknown_test.size, int)]
    )
    with tempfile.TemporaryDirectory() as folder:
        model = train(dataset, folder)
        saved = os.path.join(folder, "saved")
        model.export(saved)
        reference = ask_saved_model(saved, images)
        files = {
            name: os.path.join(folder, file)
            for name, file in (
                ("LiteRT", "model.tflite"),
                ("LiteRT, int8", "int8.tflite"),
                ("ONNX", "model.onnx"),
            )
        }
        write_litert(model, files["LiteRT"])
        write_litert(model, files["LiteRT, int8"], quantize="dynamic_range")
        write_onnx(model, files["ONNX"])
        rows = {}
        for name, path in files.items():
            ask = ask_onnx if name == "ONNX" else ask_litert
            answer = ask(path, images)
            rows[name] = compare(answer, reference, labels, path)
        graph = os.path.join(saved, "saved_model.pb")
        rows["SavedModel"] = compare(reference, reference, labels, graph)
        variables = os.path.join(saved, "variables")
        rows["SavedModel"]["bytes"] += sum(
            os.path.getsize(os.path.join(variables, file))
            for file in os.listdir(variables)
        )
    return rows


def main():
    """Runs all trials and writes the result."""
    trials = {}
    for trial in TRIALS:
        trials[str(trial)] = run_trial(trial)
        for name, row in trials[str(trial)].items():
            print(trial, name, row, flush=True)
    atomic_files.write_json(
        RESULT, {"environment": environment(), "trials": trials}
    )


if __name__ == "__main__":
    main()
