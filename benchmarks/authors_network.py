# SPDX-License-Identifier: Apache-2.0
"""The authors' released weights in plain PyTorch, with NumPy formulas.

    CAC_TF_OFFICIAL_DIR=... TFDS_DATA_DIR=... \
        python benchmarks/authors_network.py --weights=... --trials=0

docs/benchmarks_scores.md shows them beside those of released_scores.py, and
tests/results_test.py compares both ways on MNIST. Of this library only the
reader of images is used. The network is the one of the authors' code: nine
convolutions, no bias, batch norm, leaky ReLU. Writes
benchmarks/results/authors_network.json: AUROC by
the smallest rejection score around class means (as published) and around
anchors, by the distance to the closest class mean, and by the largest logit;
the accuracy in two ways: by the smallest rejection score around class means, as
in the authors' evaluation and the paper's rule, and by the largest logit. (In
the authors' code, the largest logit decides which training images count for the
class means.) About two minutes a checkpoint on two cores. Needs PyTorch.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from cac_tf import atomic_files
from cac_tf import data
from cac_tf.data.sources.benchmark_sets import BenchmarkImages
from cac_tf.experiments.environment import environment
from cac_tf.experiments.released_weights import data_of_released_weights
from cac_tf.experiments.released_weights import find_released_weights

RESULT = pathlib.Path(__file__).parent / "results" / "authors_network.json"
DATASETS = ("mnist", "cifar10", "cifar+10", "cifar+50")
# Output channels and stride of the nine convolutions.
_CONVOLUTIONS = (
    *((64, 1), (64, 1), (128, 2)),
    *((128, 1), (128, 1), (128, 2)),
    *((128, 1), (128, 1), (128, 2)),
)
_MAGNITUDE = 10.0
_BATCH = 500


def network(path):
    """The network of a checkpoint, for (B, C, H, W) normalized images.

    Returns:
        A `torch.nn.Module` that gives logits.
    """
    state = torch.load(path, map_location="cpu", weights_only=True)["net"]
    layers, channels = [], state["encoder.conv1.weight"].shape[1]
    for number, (filters, stride) in enumerate(_CONVOLUTIONS, 1):
        convolution = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        norm = nn.BatchNorm2d(filters)
        for module, name in ((convolution, "conv"), (norm, "bn")):
            start = f"encoder.{name}{number}."
            module.load_state_dict(
                {
                    key.removeprefix(start): value
                    for key, value in state.items()
                    if key.startswith(start)
                }
            )
        layers += [convolution, norm, nn.LeakyReLU(0.2)]
        channels = filters
    last = nn.Linear(*reversed(state["classify.weight"].shape))
    last.load_state_dict(
        {name: state[f"classify.{name}"] for name in ("weight", "bias")}
    )
    return nn.Sequential(*layers, nn.Flatten(), last).eval()


def logits_of(model, images, mean, std):
    """(n, N) float64 logits of (n, H, W, C) images in 0...255."""
    found = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            batch = np.float32(images[start : start + _BATCH]) / 255.0
            batch = (batch - np.float32(mean)) / np.float32(std)
            batch = torch.from_numpy(batch.transpose(0, 3, 1, 2).copy())
            found.append(model(batch).double().numpy())
    return np.concatenate(found)


def distances(logits, centers):
    """(n, N) Euclidean distances."""
    return np.linalg.norm(logits[:, None] - centers, axis=-1)


def rejection_scores(distances):
    """(n, N) gamma (equation 8)."""
    share = np.exp(distances.min(axis=1, keepdims=True) - distances)
    return distances * (1.0 - share / share.sum(axis=1, keepdims=True))


def measures(train, labels, known, known_labels, unknown):
    """AUROCs and accuracies from the logits of the parts of a data set.

    Args:
        train, labels: logits and classes of the training images.
        known, known_labels: of the known test images.
        unknown: logits of the unknown test images.
    """
    is_correct = train.argmax(axis=1) == labels
    means = np.stack(
        [
            train[is_correct & (labels == i)].mean(axis=0)
            for i in range(train.shape[1])
        ]
    )
    anchors = _MAGNITUDE * np.eye(train.shape[1])
    parts = (known, unknown)
    is_unknown = np.r_[np.zeros(len(known)), np.ones(len(unknown))]

    def auroc(score):
        return float(
            roc_auc_score(is_unknown, np.concatenate([*map(score, parts)]))
        )

    def gamma(centers):
        return lambda z: rejection_scores(distances(z, centers)).min(axis=1)

    nearest = rejection_scores(distances(known, means)).argmin(axis=1)
    return {
        "gamma": auroc(gamma(means)),
        "gamma, anchors": auroc(gamma(anchors)),
        "min_distance": auroc(lambda z: distances(z, means).min(axis=1)),
        "max_logit": auroc(lambda z: -z.max(axis=1)),
        "accuracy by the largest logit": float(
            np.mean(known.argmax(axis=1) == known_labels)
        ),
        "accuracy by the smallest gamma": float(
            np.mean(nearest == known_labels)
        ),
    }


def measure_dataset(path, name, dataset):
    """`measures` of a checkpoint on the images of a data set.

    Class means are over the training images as they are; the authors' code
    adds their mirror images for the sets that are trained with flips.
    """
    mean, std = BenchmarkImages(name).source_statistics(dataset.class_ids)
    model = network(path)

    def logits(part):
        return logits_of(model, part.images, mean, std)

    return measures(
        logits(dataset.train),
        dataset.train.labels,
        logits(dataset.known_test),
        dataset.known_test.labels,
        logits(dataset.unknown_test),
    )


def main():
    """Measures CAC's checkpoints, and writes after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="folder of .pth files")
    parser.add_argument("--trials", default="0", help="numbers of trials")
    given = parser.parse_args()
    found = {}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    for trial in map(int, given.trials.split(",")):
        for name in DATASETS:
            key = f"{name} {trial}"
            if key in found:
                continue
            path = find_released_weights(given.weights, name, "cac", trial)
            dataset = data.load_open_set_dataset(
                data_of_released_weights(name, trial)
            )
            found[key] = measure_dataset(path, name, dataset)
            result = {
                "runs": found,
                "torch": torch.__version__,
                "environment": environment(),
            }
            atomic_files.write_json(RESULT, result)
            print(key, found[key], flush=True)


if __name__ == "__main__":
    main()
