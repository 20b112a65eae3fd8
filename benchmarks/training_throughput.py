# SPDX-License-Identifier: Apache-2.0
"""Training steps per second: this library and PyTorch, on one machine.

    python benchmarks/training_throughput.py

The benchmark network with 6 classes, batch 128 of 32x32 images, CAC loss, SGD
with momentum and L2, without augmentation unless a row says so. PyTorch
runs the same network with the loss as the paper's authors formulate it
(distances from an expanded float64 tensor, the other classes picked by a loop
in Python), and with channels-last memory as a stronger peer. Each variant is a
process of its own that waits while the others run; rounds are interleaved. "Two
trainings" run at the same time, with a thread each; their rates are summed.
Writes benchmarks/results/training_throughput.json. Needs PyTorch and JAX.

On a processor without instructions for bfloat16, a step in bfloat16 takes
several times as long: fewer variants, fewer rounds, and the result is that of
its name with "_without_bfloat16", or "_without_avx512" where that is missing.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from cac_tf.models.image_classifier import image_parts

BATCH, NUM_CLASSES, SIZE = 128, 6, 32
WARM_UP, STEPS, ROUNDS = 2, 3, 8
RESULTS = pathlib.Path(__file__).parent / "results"
# name: (backend, precision, options)
VARIANTS = {
    "tensorflow float32": ("tensorflow", "float32", ()),
    "tensorflow bfloat16": ("tensorflow", "mixed_bfloat16", ()),
    "tensorflow bfloat16, augmentation": (
        "tensorflow",
        "mixed_bfloat16",
        ("augmentation",),
    ),
    "tensorflow bfloat16, Keras' batch norm": (
        "tensorflow",
        "mixed_bfloat16",
        ("keras_batch_norm",),
    ),
    "tensorflow float32, Keras' batch norm": (
        "tensorflow",
        "float32",
        ("keras_batch_norm",),
    ),
    "tensorflow float32, XLA": ("tensorflow", "float32", ("xla",)),
    # Where AVX-512 is missing, TensorFlow does without oneDNN unless asked.
    "tensorflow float32, oneDNN": ("tensorflow", "float32", ("onednn",)),
    "tensorflow float32, oneDNN, two trainings": (
        "tensorflow",
        "float32",
        ("onednn", "two"),
    ),
    "tensorflow bfloat16, two trainings": (
        "tensorflow",
        "mixed_bfloat16",
        ("two",),
    ),
    "tensorflow bfloat16, XLA": ("tensorflow", "mixed_bfloat16", ("xla",)),
    "jax float32": ("jax", "float32", ("xla",)),
    "pytorch float32": ("torch", "float32", ()),
    "pytorch bfloat16": ("torch", "bfloat16", ()),
    "pytorch float32, channels last": ("torch", "float32", ("last",)),
    "pytorch bfloat16, channels last": ("torch", "bfloat16", ("last",)),
}
WITHOUT_BFLOAT16 = (
    "tensorflow float32",
    "tensorflow float32, oneDNN",
    "tensorflow float32, oneDNN, two trainings",
    "tensorflow float32, XLA",
    "tensorflow bfloat16",
    "pytorch float32",
    "pytorch float32, channels last",
)


def keras_step(precision, options):
    """A function that makes one training step of this library."""
    import keras

    import cac_tf
    from cac_tf.models import openset_cnn

    keras.config.set_dtype_policy(precision)
    if "keras_batch_norm" in options:
        module = sys.modules["cac_tf.models.networks.network_parts"]
        module.BatchNormalization = keras.layers.BatchNormalization
    augmentation = None
    if "augmentation" in options:
        augmentation = cac_tf.layers.AffineAugmentation(0.8, 0.5, 10.0)
    parts = image_parts(
        (SIZE, SIZE, 3),
        [0.5] * 3,
        [0.25] * 3,
        openset_cnn(NUM_CLASSES, weight_decay=5e-6),
        augmentation,
    )
    model = parts.classifier()
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        cac_tf.losses.CACLoss(),
        metrics=["accuracy"],
        jit_compile="xla" in options,
    )
    images, labels = _batch()
    return lambda: model.train_on_batch(images, labels)


def torch_step(precision, options):
    """A function that makes one training step of PyTorch."""
    import torch
    from torch import nn

    parts, channels = [], 3
    for block in ((64, 64, 128), (128, 128, 128), (128, 128, 128)):
        for position, filters in enumerate(block):
            stride = 2 if position == 2 else 1
            parts += [
                nn.Conv2d(channels, filters, 3, stride, 1, bias=False),
                nn.BatchNorm2d(filters),
                nn.LeakyReLU(0.2),
            ]
            channels = filters
        parts.append(nn.Dropout2d(0.2))
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(2048, NUM_CLASSES))
    net.train()
    images, labels = _batch()
    images = torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1.0
    images = images.contiguous()
    if "last" in options:
        net = net.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    labels = torch.from_numpy(labels)
    optimizer = torch.optim.SGD(
        net.parameters(), 0.01, momentum=0.9, weight_decay=5e-6
    )
    anchors = 10.0 * torch.eye(NUM_CLASSES, dtype=torch.float64)

    def step():
        with torch.autocast(
            "cpu", torch.bfloat16, enabled=precision == "bfloat16"
        ):
            logits = net(images)
        shape = (len(logits), NUM_CLASSES, NUM_CLASSES)
        difference = logits.double()[:, None].expand(shape) - anchors
        distances = difference.norm(dim=2)
        own = distances.gather(1, labels[:, None])
        others = torch.tensor(
            [
                [j for j in range(NUM_CLASSES) if j != label]
                for label in labels.tolist()
            ]
        )
        gaps = own - distances.gather(1, others)
        tuplet = torch.log1p(gaps.exp().sum(dim=1))
        loss = (tuplet + 0.1 * own[:, 0]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _batch():
    rng = np.random.default_rng(0)
    shape = (BATCH, SIZE, SIZE, 3)
    images = rng.integers(0, 256, shape).astype("float32")
    return images, rng.integers(0, NUM_CLASSES, BATCH)


def worker(name):
    """Times steps whenever a line arrives."""
    backend, precision, options = VARIANTS[name]
    make = torch_step if backend == "torch" else keras_step
    step = make(precision, options)
    for _ in range(WARM_UP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = []
        for _ in range(STEPS):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        print(json.dumps(seconds), flush=True)


def _start(name):
    backend, _, options = VARIANTS[name]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if backend != "torch":
        environment["KERAS_BACKEND"] = backend
    if "onednn" in options:
        environment["TF_ENABLE_ONEDNN_OPTS"] = "1"
    if "two" in options:
        environment["TF_NUM_INTRAOP_THREADS"] = "1"
    process = subprocess.Popen(
        [sys.executable, __file__, "--worker", name],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"{name} did not start.")
    return process


def images_per_second(processes):
    """Rates of some steps, summed over processes that run at the same time."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    seconds = [json.loads(one.stdout.readline()) for one in processes]
    return np.sum(BATCH / np.array(seconds), axis=0)


def main():
    """Measures all variants in turns and writes the result."""
    from cac_tf import atomic_files
    from cac_tf.experiments.environment import PROCESSORS
    from cac_tf.experiments.environment import bfloat16_is_slow
    from cac_tf.experiments.environment import environment

    slow = bfloat16_is_slow()
    has_avx512 = "avx512f" in pathlib.Path(PROCESSORS).read_text("utf-8")
    lacking = "bfloat16" if has_avx512 else "avx512"
    names = [
        name
        for name, (_, _, options) in VARIANTS.items()
        if (name in WITHOUT_BFLOAT16 if slow else "onednn" not in options)
    ]
    workers = {
        name: [_start(name) for _ in range(1 + ("two" in VARIANTS[name][2]))]
        for name in names
    }
    found = {name: [] for name in names}
    for _ in range(ROUNDS // 2 if slow else ROUNDS):
        for name, processes in workers.items():
            found[name] += list(images_per_second(processes))
    for process in itertools.chain(*workers.values()):
        process.stdin.close()
        process.wait()
    rates = {
        name: {
            "images_per_second": round(float(np.median(values)), 1),
            "images_per_second_p10": round(float(np.quantile(values, 0.1)), 1),
        }
        for name, values in found.items()
    }
    median = {name: r["images_per_second"] for name, r in rates.items()}
    ratios = {
        f"{precision}{peer}": round(
            median[f"tensorflow {precision}"]
            / median[f"pytorch {precision}{peer}"],
            3,
        )
        for precision in ("float32", "bfloat16")
        for peer in ("", ", channels last")
        if f"pytorch {precision}{peer}" in median
    }
    import torch

    atomic_files.write_json(
        RESULTS / f"training_throughput{f'_without_{lacking}' * slow}.json",
        {
            "environment": environment(),
            "torch": torch.__version__,
            "batch_size": BATCH,
            "variants": rates,
            "ratio_to_pytorch": ratios,
        },
    )
    for name, rate in rates.items():
        print(f"{name:>45}  {rate['images_per_second']:7.1f} images/s")
    print(ratios)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
