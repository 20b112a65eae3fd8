# SPDX-License-Identifier: Apache-2.0
"""A frozen pretrained network and a head, on photos of the benchmark.

    TFDS_DATA_DIR=... python benchmarks/frozen_features.py NETWORK.keras \
        --kept=FOLDER [--train_share=.12] [--tiny_share=.4] [--tiny_dir=...]

The `neal` splits of CIFAR10 (trials 0 to 4), CIFAR+10, CIFAR+50 and
TinyImageNet (trial 0). Each image is computed once, whatever the trial; heads
by CAC and cross-entropy: with a hidden layer of 512 and linear, 30 epochs on
the features as they are; and the one that `cac-train` trains. Writes
benchmarks/results/frozen_features.json: accuracy, AUROC by each score, and the
share of unknown images accepted where 95 % of the validation images are; and
images a second beside a bare `predict` loop. What is there already is not
measured again.

The network has seen the kinds of these classes on ImageNet, the unknown ones
too: the numbers say what a user's pretrained network gives, and are not
comparable with networks trained from scratch.
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np
import PIL.Image
from frozen_head import LOSSES
from frozen_head import outputs_of
from frozen_head import trained_head

from cac_tf import atomic_files
from cac_tf import experiments
from cac_tf import methods
from cac_tf.data import load_open_set_dataset
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.experiments.environment import environment
from cac_tf.metrics import auroc
from cac_tf.models import OpenSetClassifier
from cac_tf.models import pretrained_backbone
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.scores import ViM
from cac_tf.training.computed_features import computed_features
from cac_tf.training.computed_features import dataset_of_features
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime

RESULT = pathlib.Path(__file__).parent / "results" / "frozen_features.json"
RUNS = [("tinyimagenet", 0), ("cifar+10", 0), ("cifar+50", 0)]
RUNS += [("cifar10", trial) for trial in range(5)]
SCORES = (
    "gamma",
    "max_logit",
    "max_softmax",
    "energy",
    "relative_mahalanobis",
    "knn",
    "nnguide",
    "vim",
)
HEADS = {
    f"{loss}, {kind}"
    for loss in LOSSES
    for kind in ("512 hidden", "linear", "as cac-train")
}
# Beside the default number, to choose it by.
VIM_DIMENSIONS = (32, 64, 128, 256, 512)
NOTE = (
    "The network has seen the kinds of these classes on ImageNet, the unknown "
    "ones too."
)


def share_of(examples, share):
    """The examples whose content falls into a share, in all trials alike."""
    rows = [
        row
        for row, image in enumerate(examples.images)
        if hashlib.sha256(np.ascontiguousarray(image)).digest()[0] / 256 < share
    ]
    return examples.take(rows)


def throughput(backbone, images, rounds):
    """Images a second, bare and kept, by turns; medians.

    Args:
        images: array, or `StreamedImages`, whose decoding counts.
    """

    def bare():
        backbone.predict(np.asarray(images[:]), 32, verbose=0)

    def kept():
        with tempfile.TemporaryDirectory() as folder:
            computed_features(backbone, images, folder)

    seconds = {bare: [], kept: []}
    for way in [bare, kept] * (rounds + 1):
        start = time.perf_counter()
        way()
        seconds[way].append(time.perf_counter() - start)
    # Without the first round, which traces.
    bare_rate, kept_rate = (
        len(images) / statistics.median(one[1:]) for one in seconds.values()
    )
    return {
        "images": len(images),
        "rounds": rounds,
        "images a second, bare predict": round(bare_rate, 1),
        "images a second, computed_features": round(kept_rate, 1),
        "ratio": round(kept_rate / bare_rate, 3),
    }


def photos(folder, count, size=256):
    """JPEG files of random textures, as `StreamedImages` of 192 pixels."""
    rng = np.random.default_rng(0)
    paths = []
    for place in range(count):
        small = rng.integers(0, 256, (10, 10, 3)).astype("uint8")
        path = pathlib.Path(folder, f"{place}.jpg")
        PIL.Image.fromarray(small).resize((size, size)).save(path)
        paths.append(str(path))
    return StreamedImages(paths, 192)


def trained_as_by_cac_train(loss, dataset, options, network):
    """The head of `cac-train --network`, of a data set of features."""
    config = experiments.ExperimentConfig(
        options, method=loss, recipe={"network": network}
    )
    recipe = config.recipe_in_force.of_head(holds_images=True)
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(Runtime(config.seed), folder)
        return methods.get(loss).train(dataset, recipe, run)


def heads(dataset, options, network):
    """Each head's name, and what trains it on a data set of features."""
    num_classes = len(dataset.class_names)
    features, labels = np.float32(dataset.train.images), dataset.train.labels
    for loss in LOSSES:
        for kind, hidden in (("512 hidden", 512), ("linear", None)):
            yield (
                f"{loss}, {kind}",
                lambda loss=loss, hidden=hidden: trained_head(
                    features, labels, num_classes, loss=loss, hidden=hidden
                ),
            )
        yield (
            f"{loss}, as cac-train",
            lambda loss=loss: trained_as_by_cac_train(
                loss, dataset, options, network
            ),
        )


def measure(network, backbone, kept, options, train_share, done):
    """All heads and scores of one split, but for heads that are done.

    Args:
        network: what `cac-train` would be given.
        backbone: the same, loaded.
        kept: folder of features.
        options: those of the data set, by name.
        train_share: share of the training and validation images to take.
        done: what an earlier call returned.
    """
    dataset = load_open_set_dataset(**options)
    dataset = dataclasses.replace(
        dataset,
        train=share_of(dataset.train, train_share),
        validation=share_of(dataset.validation, train_share),
    )
    start = time.perf_counter()
    dataset = dataset_of_features(backbone, dataset, kept)
    features = {
        part: np.float32(getattr(dataset, part).images)
        for part in dataset.counts
    }
    result = {
        "images": dataset.counts,
        "train_share": train_share,
        "minutes of features": round((time.perf_counter() - start) / 60, 2),
        **done,
    }
    found = result.setdefault("heads", {})
    for key, train in heads(dataset, options, network):
        if key in found:
            continue
        start = time.perf_counter()
        head = train()
        seconds = time.perf_counter() - start
        found[key] = {
            "seconds of training": round(seconds, 1),
            **_measured(head, dataset, features),
        }
    result["heads"] = dict(sorted(found.items()))
    return result


def _measured(head, dataset, features):
    outputs = {
        part: ComputedOutputs(outputs_of(head, one))
        for part, one in features.items()
    }
    train_labels = dataset.train.labels
    model = OpenSetClassifier.from_outputs(
        head,
        outputs_of(head, features["train"]),
        train_labels,
        class_names=dataset.class_names,
        score="gamma",
    )
    width = model.network.width_of_features
    chosen = {name: name for name in SCORES}
    for dimensions in VIM_DIMENSIONS:
        if dimensions < width:
            chosen[f"vim, {dimensions} dimensions"] = ViM(dimensions)
    result = {"accuracy": None, "auroc": {}, "unknown accepted": {}}
    for name, score in chosen.items():
        try:
            own = model.with_score(score, outputs["train"], train_labels)
        except ValueError as error:  # E.g. no residual is left.
            result["auroc"][name] = str(error).split(".")[0]
            continue
        threshold = own.calibrate(
            outputs["validation"], true_positive_rate=0.95
        )
        known = own.predict_scores(outputs["known_test"])
        unknown = own.predict_scores(outputs["unknown_test"]).unknown_score
        result["auroc"][name] = round(
            float(auroc(known.unknown_score, unknown)), 4
        )
        result["unknown accepted"][name] = round(
            float(np.mean(unknown <= threshold)), 4
        )
        result["accuracy"] = round(
            float(
                np.mean(known.predicted_class_id == dataset.known_test.labels)
            ),
            4,
        )
    return result


def main():
    """Measures what is not there yet, and writes after each split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", help="as of pretrained_backbone")
    parser.add_argument("--kept", required=True, help="folder of features")
    parser.add_argument("--train_share", type=float, default=1.0)
    parser.add_argument("--tiny_share", type=float, default=1.0)
    parser.add_argument("--tiny_dir", help="TFDS folder of TinyImageNet")
    parser.add_argument("--image_size", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=7, help="of throughput")
    given = parser.parse_args()
    backbone = pretrained_backbone(given.network, image_size=given.image_size)
    found = {}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))
    found = {"note": NOTE, "image_size": given.image_size, **found}
    found["network"] = pathlib.Path(given.network).name
    runs = found.setdefault("runs", {})

    def write():
        found["environment"] = environment()
        atomic_files.write_json(RESULT, found)

    if given.rounds and "throughput" not in found:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (512, 32, 32, 3)).astype("uint8")
        with tempfile.TemporaryDirectory() as folder:
            found["throughput"] = {
                "array of 32 pixels": throughput(
                    backbone, images, given.rounds
                ),
                "JPEG files of 256 pixels": throughput(
                    backbone, photos(folder, 512), given.rounds
                ),
            }
        write()
    for name, trial in RUNS:
        key = f"{name} trial {trial}"
        done = runs.get(key, {})
        if set(done.get("heads", ())) >= HEADS:
            continue
        is_tiny = name == "tinyimagenet"
        options = {"dataset": name, "trial": trial}
        if is_tiny and given.tiny_dir is not None:
            options["data_dir"] = given.tiny_dir
        runs[key] = measure(
            given.network,
            backbone,
            given.kept,
            options,
            given.tiny_share if is_tiny else given.train_share,
            done,
        )
        write()
        print(key, runs[key], flush=True)


if __name__ == "__main__":
    main()
