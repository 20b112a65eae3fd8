# SPDX-License-Identifier: Apache-2.0
"""Near and far unknown images, by the authors' released weights.

    CAC_TF_OFFICIAL_DIR=... TFDS_DATA_DIR=... python benchmarks/near_far.py \
        --weights=... --kmnist=kmnist-test-imgs.npz --letters=data/emnist

Trial 0 of MNIST and CIFAR10 (`miller2020`), CAC and cross-entropy. The unknown
images of the split come from the same data set, and are near. From elsewhere:
handwritten Japanese characters (KMNIST's test images) and Latin letters (a
folder of images) for MNIST; all test images of CIFAR100, and the digits of
MNIST, for CIFAR10. Writes benchmarks/results/near_far.json: AUROC by each
score, and the share of each set that the threshold accepts, where it accepts 95
% of the known validation images. Needs PyTorch; about twenty minutes on two
cores.
"""

import argparse
import json
import pathlib
import tempfile

from cac_tf import atomic_files
from cac_tf import experiments
from cac_tf.data import load_open_set_dataset
from cac_tf.data.unknown_data import load_unknown_images
from cac_tf.experiments.environment import environment
from cac_tf.experiments.released_weights import data_of_released_weights
from cac_tf.experiments.released_weights import find_released_weights
from cac_tf.experiments.released_weights import import_weights
from cac_tf.methods.known_data import open_set_classifier
from cac_tf.models.saving import load_model

RESULT = pathlib.Path(__file__).parent / "results" / "near_far.json"
SCORES = ("gamma", "max_logit", "max_softmax", "energy", "vim", "knn")


def measure(weights, dataset_name, method, sources):
    """What `evaluate` says of a checkpoint and further unknown images.

    Args:
        weights: folder of the authors' .pth files.
        dataset_name: "mnist" or "cifar10".
        method: "cac" or "cross_entropy".
        sources: dict from a name to a source of `load_unknown_images`.
    """
    checkpoint = find_released_weights(weights, dataset_name, method, 0)
    options = data_of_released_weights(dataset_name, 0)
    with tempfile.TemporaryDirectory() as folder:
        _, path = import_weights(checkpoint, options, folder)
        model = load_model(path)
    dataset = load_open_set_dataset(options)
    model = open_set_classifier(
        model.classifier,
        dataset,
        model.score,
        magnitude=model.magnitude or 10.0,
    )
    model.calibrate(dataset.validation.images, true_positive_rate=0.95)
    evaluation = experiments.evaluate(
        model,
        dataset,
        method,
        SCORES,
        unknown_data={
            name: load_unknown_images(source, dataset.image_shape)[0]
            for name, source in sources.items()
        },
    )
    measures = evaluation.metrics
    near = {
        "images": measures["counts"]["unknown_test"],
        "false_positive_rate": measures["false_positive_rate"],
        "scores": measures["scores"],
    }
    sets = {"the split's": near, **measures["unknown_data"]}
    return {
        "score of the threshold": measures["score"],
        "true_positive_rate": measures["true_positive_rate"],
        "unknown": {
            name: {
                "images": one["images"],
                "accepted at the threshold": one["false_positive_rate"],
                "auroc": {
                    score: values["auroc"]
                    for score, values in one["scores"].items()
                },
            }
            for name, one in sets.items()
        },
    }


def main():
    """Measures what is not there yet, and writes after each checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="folder of .pth files")
    parser.add_argument("--kmnist", required=True, help=".npz file of KMNIST")
    parser.add_argument("--letters", required=True, help="folder of letters")
    given = parser.parse_args()
    sources = {
        "mnist": {
            "kmnist": f"npz:{given.kmnist}",
            "letters": f"folder:{given.letters}",
        },
        "cifar10": {"cifar100": "tfds:cifar100", "mnist": "tfds:mnist"},
    }
    found = {}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    for dataset_name, others in sources.items():
        for method in ("cac", "cross_entropy"):
            key = f"{dataset_name} {method}"
            if key in found:
                continue
            found[key] = measure(given.weights, dataset_name, method, others)
            atomic_files.write_json(
                RESULT,
                {"runs": found, "environment": environment()},
            )
            print(key, found[key], flush=True)


if __name__ == "__main__":
    main()
