# SPDX-License-Identifier: Apache-2.0
"""Trains the benchmark's network in other ways, to find a better recipe.

    TFDS_DATA_DIR=... python benchmarks/better_training.py [NAME ...]

Every try in `TRIES` changes `BASE` in a few places; all are plain Keras. Known
are four of the six known classes of `miller2020` trial 0, unknown the other
two, and all images are of the *training* part of the data set: no image of the
benchmark's tests, and no class that is unknown in trial 0, is looked at. Writes
benchmarks/results/better_training.json after each try; what is there is not
trained again.

Where AVX-512 is missing, TF_ENABLE_ONEDNN_OPTS=1 in the environment makes it
faster; `cac-train` sets that.
"""

import itertools
import json
import pathlib
import sys
import time

import keras
import numpy as np
from frozen_head import outputs_of
from training_queue import HELD_OUT
from training_queue import KNOWN
from tried_losses import Steps
from tried_losses import TriedCAC

import cac_tf
from cac_tf import atomic_files
from cac_tf import data
from cac_tf.experiments.environment import bfloat16_is_slow
from cac_tf.experiments.environment import environment
from cac_tf.metrics import auroc
from cac_tf.models import OpenSetClassifier
from cac_tf.models import openset_cnn
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.training.checkpoint import Checkpoint

RESULT = pathlib.Path(__file__).parent / "results" / "better_training.json"
SCORES = ("gamma", "max_logit", "max_softmax", "vim", "knn", "nnguide")
SIZE = 32
# An interrupted training goes on after a multiple of so many steps.
STEPS_KEPT = 250
# The known classes of trial 0, in pairs that can be left out.
PAIRS = {
    "cifar10": (HELD_OUT, KNOWN[:2], KNOWN[2:]),
    "mnist": (("2", "9"), ("3", "6"), ("0", "1")),
}
BASE = {
    "dataset": "cifar10",
    # Which pair of classes is unknown.
    "left_out": 0,
    "loss": "cac",
    # Of the CAC loss; and the temperature of its tuplet term at the first and
    # the last step.
    "magnitude": 10.0,
    "temperatures": (1.0, 1.0),
    # Of cross-entropy.
    "label_smoothing": 0.0,
    # Share of a batch that is mixed of two images each, and its weight.
    "mixed": 0.0,
    "mixed_weight": 0.1,
    # In units of training images at 32x32 pixels, which is what a step costs.
    "images": 288_000,
    "batch_size": 128,
    # Of SGD with momentum; falls to 0 by one cosine.
    "learning_rate": 0.05,
    "momentum": 0.9,
    "nesterov": True,
    # Share of the steps in which the learning rate rises.
    "warm_up": 0.05,
    "weight_decay": 5e-4,
    # Whether half of the images are mirrored.
    "flip": True,
    # Pixels that an image is moved by, at most.
    "shift": 4,
    # Between pixels, when an image is moved; "nearest" moves by whole ones.
    "interpolation": "bilinear",
    # Smallest area of a random crop, as a share of the image's; 1: no crops.
    "crop": 1.0,
    # Largest angle in degrees that a crop is turned by.
    "rotation": 0.0,
    # Keras' RandAugment of one operation, of this strength; 0: none.
    "rand_augment": 0.0,
    # Pairs: size of the images in pixels, and share of the passes at it.
    "sizes": ((SIZE, 1.0),),
    "cycles": 1,
    # Each with a seed of its own and its share of the images.
    "networks": 1,
    # Momentum of the average of the weights that is kept; 0: the last ones.
    "averaged": 0.0,
    "seed": 0,
}
GROWING = ((16, 0.3), (24, 0.4), (32, 0.3))
# Of the preset "fast".
PLAIN_MOMENTUM = {"nesterov": False, "warm_up": 0.0}
CROPS = {"shift": 0, "crop": 0.8}
# 288,000 images of 16x16 pixels.
SMALL = {"weight_decay": 2e-3, "images": 72_000, "sizes": ((16, 1.0),)}
MNIST = {"dataset": "mnist", "images": 100_000, "flip": False}
# Of the preset "fast" for digits.
DIGIT_CROPS = {"shift": 0, "crop": 0.7}
DIGITS = {**MNIST, **DIGIT_CROPS, "weight_decay": 2e-3}
# For cross-entropy, with each pair left out.
OF_CROSS_ENTROPY = {
    "small_cross_entropy": {},
    "small_cross_entropy_smoothed": {"label_smoothing": 0.1},
    "small_cross_entropy_two_networks": {"images": 144_000, "networks": 2},
    "small_cross_entropy_twice_as_long": {"images": 144_000},
}
TRIES = {
    "base": {},
    "cross_entropy": {"loss": "cross_entropy"},
    "rate_0.02": {"learning_rate": 0.02},
    "rate_0.1": {"learning_rate": 0.1},
    "decay_1e-4": {"weight_decay": 1e-4},
    "decay_2e-3": {"weight_decay": 2e-3},
    "fewer_pixels": {"sizes": GROWING},
    "rand_augment": {"rand_augment": 0.2},
    "averaged": {"averaged": 0.999},
    "three_cycles": {"cycles": 3},
    "decay_2e-3_fewer_pixels": {"weight_decay": 2e-3, "sizes": GROWING},
    "decay_5e-3_fewer_pixels": {"weight_decay": 5e-3, "sizes": GROWING},
    # What the preset "fast" has, but for its decay.
    "decay_2e-3_as_preset": {
        "weight_decay": 2e-3,
        **PLAIN_MOMENTUM,
        **CROPS,
    },
    # Which of the differences to the preset matters; a fifth as long.
    "short": {"weight_decay": 2e-3, "images": 64_000},
    "short_crop": {"weight_decay": 2e-3, "images": 64_000, **CROPS},
    "short_plain_momentum": {
        "weight_decay": 2e-3,
        "images": 64_000,
        **PLAIN_MOMENTUM,
    },
    # As many steps as at 32x32 pixels, at a fourth of the cost.
    "small": SMALL,
    "small_crop": {**SMALL, **CROPS},
    "small_whole_pixels": {**SMALL, "interpolation": "nearest"},
    "small_mixed": {**SMALL, "mixed": 0.25},
    "small_temperature": {**SMALL, "temperatures": (0.5, 2.0)},
    "mnist_base": MNIST,
    "mnist_decay_2e-3": {**MNIST, "weight_decay": 2e-3},
    "mnist_crop": {**MNIST, **DIGIT_CROPS},
    "mnist_fewer_pixels": {**MNIST, "sizes": GROWING},
    "mnist_crop_rotation": {**MNIST, **DIGIT_CROPS, "rotation": 15.0},
    "mnist_decay_2e-3_crop": DIGITS,
    "mnist_decay_2e-3_crop_pair_1": {**DIGITS, "left_out": 1},
    "mnist_decay_2e-3_crop_fewer_pixels": {**DIGITS, "sizes": GROWING},
    "mnist_decay_2e-3_crop_fewer_pixels_pair_1": {
        **DIGITS,
        "sizes": GROWING,
        "left_out": 1,
    },
    **{
        f"{name}_pair_{pair}": {
            **SMALL,
            "loss": "cross_entropy",
            "left_out": pair,
            **changed,
        }
        for name, changed in OF_CROSS_ENTROPY.items()
        for pair in range(len(PAIRS["cifar10"]))
    },
}


def held_out(dataset, pair):
    """Images and labels: to train with, known ones, and unknown images."""
    pairs = list(PAIRS[dataset])
    left_out = pairs.pop(pair)
    known = sorted(itertools.chain(*pairs))
    whole = data.load_open_set_dataset(
        dataset, known_classes=(*known, *left_out), validation_fraction=0.1
    )
    number = len(known)
    parts = [
        part.take(np.flatnonzero(part.labels < number))
        for part in (whole.train, whole.validation)
    ]
    unknown = [
        part.images[part.labels >= number]
        for part in (whole.train, whole.validation)
    ]
    return *parts, np.concatenate(unknown)


def logits_of(network, x):
    """The network's layers applied to normalized images of any size.

    The last map is brought to the size that the dense layer expects.
    """
    for layer in network.layers[1:]:
        if isinstance(layer, keras.layers.Flatten):
            _, height, width, _ = layer.input.shape
            if x.shape[1] != height:
                x = keras.layers.Resizing(
                    height, width, interpolation="nearest", dtype="float32"
                )(x)
        x = layer(x)
    return x


def normalized(size):
    """Layers from pixels of images of 32x32 to normalized ones of a size."""
    layers = [keras.layers.Rescaling(1 / 64, -2, dtype="float32")]
    if size != SIZE:
        layers.insert(
            0,
            keras.layers.Resizing(size, size, antialias=True, dtype="float32"),
        )
    return layers


def augmentation(tried):
    """Layers that change images of 32x32 pixels at random."""
    seed = tried["seed"]
    # Pixels of several hundreds need more digits than bfloat16 has.
    exact = {"dtype": "float32"}
    layers = []
    if tried["flip"]:
        layers.append(keras.layers.RandomFlip("horizontal", seed=seed, **exact))
    if tried["rand_augment"]:
        layers.append(
            keras.layers.RandAugment(
                num_ops=1,
                factor=tried["rand_augment"],
                seed=seed + 1,
                **exact,
            )
        )
    if tried["shift"]:
        share = tried["shift"] / SIZE
        layers.append(
            keras.layers.RandomTranslation(
                share,
                share,
                fill_mode="reflect",
                interpolation=tried["interpolation"],
                seed=seed + 2,
                **exact,
            )
        )
    if tried["crop"] < 1:
        layers.append(
            cac_tf.layers.AffineAugmentation(
                tried["crop"],
                rotation=tried["rotation"],
                seed=seed + 3,
                **exact,
            )
        )
    return layers


def from_pixels(network, size, augmenting=()):
    """The same weights as a model from pixels of 32x32 images to logits.

    Args:
        network: of normalized images of 32x32 pixels.
        size: of the images that its first layer gets.
        augmenting: layers that come before.
    """
    x = inputs = keras.Input(network.input_shape[1:])
    for layer in [*augmenting, *normalized(size)]:
        x = layer(x)
    return keras.Model(inputs, logits_of(network, x))


class Batches(keras.utils.PyDataset):
    """Some of the whole batches in an order of the seed's own."""

    def __init__(self, examples, batch_size, steps, seed, mixed):
        super().__init__()
        self._examples, self._batch_size = examples, batch_size
        self._mixed, self._seed = int(mixed * batch_size), seed
        self._steps = steps
        rng = np.random.default_rng(seed)
        rows = [
            rng.permutation(examples.size)
            for _ in range(-(-steps.stop * batch_size // examples.size))
        ]
        self._rows = np.concatenate(rows)

    def __len__(self):
        return len(self._steps)

    def __getitem__(self, batch):
        batch = self._steps[batch]
        start = batch * self._batch_size
        rows = self._rows[start : start + self._batch_size]
        labels = self._examples.labels[rows]
        images = np.float32(self._examples.images[rows])
        if self._mixed:
            # The first ones, each with one of another class.
            rng = np.random.default_rng([*self._seed, batch])
            first = slice(self._mixed)
            others = [
                rng.choice(np.flatnonzero(labels != label))
                for label in labels[first]
            ]
            share = rng.random((self._mixed, 1, 1, 1), "float32")
            images[first] = share * images[first] + (1 - share) * images[others]
            labels[first] = self._examples.labels.max() + 1
        return images, labels


def optimizer_of(tried, steps):
    """SGD with its schedule over so many steps."""
    warm_up = int(tried["warm_up"] * steps)
    rate = tried["learning_rate"]
    schedule = keras.optimizers.schedules.CosineDecay(
        rate / 100, steps - warm_up, warmup_target=rate, warmup_steps=warm_up
    )
    averaged = {}
    if tried["averaged"]:
        averaged = {"use_ema": True, "ema_momentum": tried["averaged"]}
    return keras.optimizers.SGD(
        schedule,
        momentum=tried["momentum"],
        nesterov=tried["nesterov"],
        **averaged,
    )


def smoothed_cross_entropy(smoothing):
    """Cross-entropy of logits and labels that are class indices."""
    if not smoothing:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss(labels, logits):
        return keras.losses.categorical_crossentropy(
            keras.ops.one_hot(labels, logits.shape[-1]),
            logits,
            from_logits=True,
            label_smoothing=smoothing,
        )

    return loss


def loss_of(tried, steps):
    """A loss, and the callbacks that it needs."""
    if tried["loss"] == "cross_entropy":
        return smoothed_cross_entropy(tried["label_smoothing"]), []
    is_plain = tried["temperatures"] == (1.0, 1.0) and not tried["mixed"]
    if is_plain:
        return cac_tf.losses.CACLoss(tried["magnitude"]), []
    loss = TriedCAC(
        tried["temperatures"], steps, tried["mixed_weight"], tried["magnitude"]
    )
    return loss, [Steps(loss)]


def parts_of(tried, longest=None):
    """The parts of a cycle: pairs of the images' size and steps at this size.

    Each has so many steps at most; None: all of a size.
    A step costs roughly by the area; all tries cost about the same.
    """
    area = sum(share * (size / SIZE) ** 2 for size, share in tried["sizes"])
    steps = tried["images"] / area / tried["cycles"] / tried["batch_size"]
    found = []
    for size, share in tried["sizes"]:
        of_size = range(int(steps * share))
        length = longest or len(of_size)
        found += [
            (size, of_size[start : start + length])
            for start in of_size[::length]
        ]
    return found


def train(tried, examples, path=None):
    """Networks, one after each cycle, and the seconds that they took.

    Args:
        tried: values of `BASE`.
        examples: images and labels.
        path: of a file (.npz) by which a training of one cycle, without
            averaged weights, goes on after an interruption.
    """
    keras.utils.clear_session()
    keras.config.set_dtype_policy(precision())
    keras.utils.set_random_seed(tried["seed"])
    network = openset_cnn(
        int(examples.labels.max()) + 1,
        examples.images.shape[1:],
        dropout=0.0,
        weight_decay=tried["weight_decay"],
        seed=tried["seed"],
    )
    # (Keras takes averaged weights at the end of each part.)
    parts = parts_of(tried, None if path is None else STEPS_KEPT)
    steps = sum(len(part) for _, part in parts)
    loss, callbacks = loss_of(tried, steps)
    augmenting = augmentation(tried)
    models = {
        size: from_pixels(network, size, augmenting)
        for size, _ in tried["sizes"]
    }
    ended, seconds = [], 0.0
    for cycle in range(tried["cycles"]):
        optimizer = optimizer_of(tried, steps)
        for model in models.values():
            model.compile(optimizer, loss, jit_compile=False)
        optimizer.build(network.trainable_variables)
        # (The models of all sizes have the same variables.)
        checkpoint = None if path is None else Checkpoint(model, path)
        done, seconds_before = 0, 0.0
        if checkpoint and (saved := checkpoint.restore()):
            done, seconds_before = saved[0]
        seconds += seconds_before
        for number, (size, part) in enumerate(parts[done:], done + 1):
            start = time.perf_counter()
            batches = Batches(
                examples,
                tried["batch_size"],
                part,
                [tried["seed"], cycle, size],
                tried["mixed"],
            )
            models[size].fit(
                batches, shuffle=False, verbose=0, callbacks=callbacks
            )
            seconds += time.perf_counter() - start
            if checkpoint:
                checkpoint.save([number, seconds], {})
        ended.append(keras.models.clone_model(network))
        ended[-1].set_weights(network.get_weights())
    return ended, seconds


def values_of(network, size, is_mirrored, examples, known, unknown):
    """Accuracy, and by score the values of known images and of each `unknown`.

    Images have the size of the end of the training. Where they may be mirrored,
    the sum over both is another score. A score that a network which has learnt
    nothing does not allow is told and left out.
    """
    head = from_pixels(network, size)
    fitted_on = outputs_of(head, examples.images)
    views = [
        [
            outputs_of(head, one[:, :, ::step])
            for one in (known.images, *unknown)
        ]
        for step in ((1, -1) if is_mirrored else (1,))
    ]
    found = {}
    for name in SCORES:
        try:
            model = OpenSetClassifier.from_outputs(
                head, fitted_on, examples.labels, score=name
            )
        except ValueError as error:
            print(f"{name}: {error}", flush=True)
            continue
        values = [
            [
                model.predict_scores(ComputedOutputs(part)).unknown_score
                for part in parts
            ]
            for parts in views
        ]
        found[name] = values[0]
        if is_mirrored:
            found[f"{name}, flip"] = [
                np.sum(part, axis=0) for part in zip(*values, strict=True)
            ]
    predicted = views[0][0]["logits"].argmax(-1)
    return round(float(np.mean(predicted == known.labels)), 4), found


def measure(networks, tried, examples, known, *unknown):
    """For each `unknown`: accuracies and AUROCs of the networks."""
    size = tried["sizes"][-1][0]
    accuracies, found = zip(
        *[
            values_of(one, size, tried["flip"], examples, known, unknown)
            for one in networks
        ],
        strict=True,
    )
    return [
        {"accuracy": list(accuracies), "auroc": aurocs_of(found, number)}
        for number in range(1, len(unknown) + 1)
    ]


def aurocs_of(found, number):
    """By score: the AUROC of each network, and of their mean score.

    Args:
        found: of each network, values by score, as `values_of` gives them.
        number: which of these are the unknown ones.
    """
    aurocs = {}
    for name in found[-1]:
        pairs = [
            (one[name][0], one[name][number]) for one in found if name in one
        ]
        aurocs[name] = [round(float(auroc(*pair)), 4) for pair in pairs]
        if len(pairs) > 1:
            standard = [
                [(part - np.mean(pair[0])) / np.std(pair[0]) for part in pair]
                for pair in pairs
            ]
            mean = [np.mean(p, axis=0) for p in zip(*standard, strict=True)]
            aurocs[f"{name}, mean"] = round(float(auroc(*mean)), 4)
    return aurocs


def precision():
    """What this processor trains fastest with; the name of a Keras policy."""
    return "float32" if bfloat16_is_slow() else "mixed_bfloat16"


def kept():
    """The tries that have been made, by name."""
    if not RESULT.exists():
        return {}
    return json.loads(RESULT.read_text(encoding="utf-8"))["tries"]


def main(*names):
    """Trains what is not kept yet."""
    for name in names or TRIES:
        if name in kept():
            continue
        tried = {**BASE, **TRIES[name]}
        examples, *others = held_out(tried["dataset"], tried["left_out"])
        networks, seconds = [], 0.0
        for seed in range(tried["seed"], tried["seed"] + tried["networks"]):
            images = tried["images"] / tried["networks"]
            one = {**tried, "images": images, "seed": seed}
            ended, lasted = train(one, examples)
            networks, seconds = [*networks, *ended], seconds + lasted
        (measured,) = measure(networks, tried, examples, *others)
        result = {
            "changed": TRIES[name],
            "precision": precision(),
            "seconds": round(seconds),
            **measured,
            "environment": environment(),
        }
        print(name, result, flush=True)
        # Another process may have made another try meanwhile.
        tries = {**kept(), name: result}
        atomic_files.write_json(RESULT, {"tries": tries, "base": BASE})


if __name__ == "__main__":
    main(*sys.argv[1:])
