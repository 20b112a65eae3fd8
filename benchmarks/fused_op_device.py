# SPDX-License-Identifier: Apache-2.0
"""Verifies and measures the fused operations on a GPU, through JAX.

KERAS_BACKEND=jax python benchmarks/fused_op_device.py --output=result.json

Needs JAX, Keras and a compiler (`nvcc` for a GPU), but no TensorFlow. It builds
the library if there is none. Every output is compared with the equations in
float64 (tests/oracle.py); then the bandwidth of the operations is compared with
that of a copy on the same device. Exit status 0: all is within tolerance. To
look for races between threads: `compute-sanitizer --tool racecheck python
benchmarks/fused_op_device.py --checks_only`.
Without a GPU it does the same on the CPU, with smaller arrays.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import app
from absl import flags

from cac_tf import atomic_files
from cac_tf import ops as fused_ops
from cac_tf.experiments.environment import environment
from cac_tf.ops import build
from cac_tf.ops import loader
from tests import oracle

_OUTPUT = flags.DEFINE_string(
    "output", None, "Where the result goes, as JSON; by default nowhere."
)
_CHECKS_ONLY = flags.DEFINE_bool(
    "checks_only", False, "Measure nothing: for `compute-sanitizer`."
)

CLASS_COUNTS = (2, 6, 20, 200, 257, 1000, 1001, 10000)
NOISES = (1.0, 0.1, 0.01, 0.001)
# (rows, classes); 2**26 logits, more than caches hold, and small batches.
GPU_SHAPES = (
    *(
        (2**26 // classes, classes)
        for classes in (6, 8, 20, 100, 256, 1000, 1024, 4096, 10000)
    ),
    *((128, 6), (128, 20)),
)
CPU_SHAPES = ((4096, 8), (1024, 256), (256, 1024), (32, 10000))
# The largest errors that are right, by output.
TOLERANCES = {
    "loss": 1e-6,
    "anchor": 1e-6,
    "tuplet": 4e-6,
    "gradient, own class": 1e-6,
    "gradient, another class": 4e-6,
    "distances": 1e-6,
    # Of two classes close to an anchor: e^-13 is as exact as its exponent.
    "gamma": 8e-6,
    "nearest class": 0.0,
}
REPETITIONS = 30


def fused_terms(logits, labels):
    """Loss, anchor and tuplet loss of every row."""
    return fused_ops.binding().anchored_cac_loss(
        labels, logits, 10.0, 0.1, validate=False
    )


@jax.jit
def loss_and_gradient(logits, labels):
    """`LossTerms`, and the gradient of the sum of all losses."""

    def total(z):
        terms = fused_terms(z, labels)
        return terms.loss.sum(), terms

    gradient, terms = jax.grad(total, has_aux=True)(logits)
    return terms, gradient


@jax.jit
def fused_scores(logits):
    """Distances, gamma, the smallest one and its class."""
    return fused_ops.binding().anchored_scores(logits, 10.0)


def gamma_of(d):
    """`oracle.gamma`, in O(B N)."""
    shares = oracle.softmin(d)
    # Of all classes but the nearest, one minus a share loses nothing.
    is_nearest = np.arange(d.shape[1]) == d.argmin(axis=1)[:, None]
    others = np.where(is_nearest, 0.0, shares).sum(axis=1, keepdims=True)
    return d * np.where(is_nearest, others, 1.0 - shares)


def check_half_precision():
    """Whether logits of half precision give what they give in float32.

    But for roundings, as a compiler may contract the same sums otherwise.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(64, dtype="int32")
    for dtype in ("bfloat16", "float16"):
        for num_classes in (64, 99, 1000, 2000):
            logits = 5 * rng.standard_normal((64, num_classes))
            narrow = jnp.asarray(logits, dtype)
            wide = jnp.asarray(narrow, "float32")
            terms, gradient = loss_and_gradient(narrow, labels)
            expected, by_wide = loss_and_gradient(wide, labels)
            pairs = [
                *zip(terms, expected, strict=True),
                *zip(fused_scores(narrow), fused_scores(wide), strict=True),
            ]
            errors = [oracle.relative_error(a, b) for a, b in pairs]
            step = float(jnp.finfo(dtype).eps)
            if max(errors) > 1e-5 or (
                gradient.dtype != narrow.dtype
                or oracle.row_relative_error(gradient, by_wide) > step
            ):
                return False
    return True


def check_losses():
    """Largest errors of loss, terms, gradient and rejection scores."""
    errors = dict.fromkeys(TOLERANCES, 0.0)

    def record(name, error):
        errors[name] = max(errors[name], float(error))

    for num_classes in CLASS_COUNTS:
        for noise in NOISES:
            rng = np.random.default_rng(num_classes)
            near = rng.integers(0, num_classes, 64)
            logits = noise * rng.standard_normal((64, num_classes))
            logits[np.arange(64), near] += 10.0
            logits = logits.astype("float32")
            d = oracle.distances_to_anchors(logits)
            scores = fused_scores(logits)
            record("distances", oracle.relative_error(scores.distances, d))
            record("gamma", oracle.relative_error(scores.gamma, gamma_of(d)))
            nearest = logits.argmax(axis=1)
            record("nearest class", np.any(scores.nearest != nearest))
            for kind, shift in (("own class", 0), ("another class", 1)):
                labels = (near + shift) % num_classes
                terms, gradient = loss_and_gradient(
                    logits, labels.astype("int32")
                )
                for name in ("loss", "anchor", "tuplet"):
                    function = {
                        "loss": oracle.cac_loss,
                        "anchor": oracle.anchor_loss,
                        "tuplet": oracle.tuplet_loss,
                    }[name]
                    actual = getattr(terms, name)
                    record(
                        name,
                        oracle.relative_error(actual, function(labels, d)),
                    )
                record(
                    f"gradient, {kind}",
                    oracle.row_relative_error(
                        gradient, oracle.cac_gradient_to_anchors(labels, logits)
                    ),
                )
    return errors


def check_bad_rows():
    """Whether invalid rows, and no others, come back as NaN."""
    logits = np.ones((6, 300), "float32")
    logits[1, 299], logits[2, 0], logits[3, 7] = np.nan, np.inf, 1e30
    labels = np.array([0, 0, 0, 0, -1, 300], "int32")
    terms, gradient = loss_and_gradient(logits, labels)
    expected = [False, True, True, True, True, True]
    return (
        np.isnan(terms.loss).tolist() == expected
        and np.isnan(gradient).all(axis=1).tolist() == expected
        and np.isnan(gradient).any(axis=1).tolist() == expected
        and np.isnan(fused_scores(logits).unknown_score[:4]).tolist()
        == expected[:4]
        and fused_terms(jnp.zeros((0, 5)), jnp.zeros(0, "int32")).loss.shape
        == (0,)
    )


def seconds(function, *arguments):
    """Median time of a call of a compiled function."""
    for _ in range(3):
        jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        # Ten in a queue, so that dispatching them does not count.
        for _ in range(10):
            result = function(*arguments)
        jax.block_until_ready(result)
        times.append((time.perf_counter() - begin) / 10)
    return float(np.median(times))


def measure(shapes):
    """Microseconds of the operations, and their bandwidth beside a copy's."""
    copy = jax.jit(jnp.copy)
    loss = jax.jit(lambda z, y: fused_terms(z, y).loss)
    results = {}
    for rows, classes in shapes:
        key = jax.random.key(0)
        logits = jax.random.normal(key, (rows, classes))
        labels = jnp.arange(rows, dtype="int32") % classes
        logits = logits.at[jnp.arange(rows), labels].add(10.0)
        half = logits.astype("bfloat16")
        times = {
            "copy": seconds(copy, logits),
            "loss": seconds(loss, logits, labels),
            "both": seconds(loss_and_gradient, logits, labels),
            "both_of_bfloat16": seconds(loss_and_gradient, half, labels),
            "scores": seconds(fused_scores, logits),
        }
        times["gradient"] = times["both"] - times["loss"]
        # What an operation reads and writes of a row: logits and what is as
        # wide; labels, losses, and their upstream gradients.
        sizes = {
            "copy": 8 * classes,
            "loss": 4 * classes + 20,
            "gradient": 8 * classes + 16,
            "both": 12 * classes + 36,
            "both_of_bfloat16": 6 * classes + 36,
            "scores": 12 * classes + 8,
        }
        rates = {
            name: 1e-9 * rows * size / times[name]
            for name, size in sizes.items()
        }
        results[f"{rows}x{classes}"] = {
            **{f"{name}_gb_per_s": round(r, 3) for name, r in rates.items()},
            **{
                f"{name}_to_copy": round(rate / rates["copy"], 3)
                for name, rate in rates.items()
                if name != "copy"
            },
            "copy_us": round(1e6 * times["copy"], 1),
            "loss_us": round(1e6 * times["loss"], 1),
            "loss_and_gradient_us": round(1e6 * times["both"], 1),
            "scores_us": round(1e6 * times["scores"], 1),
        }
    return results


def _hardware():
    device = jax.devices()[0]
    versions = {"jax": jax.__version__, "device": device.device_kind}
    if shutil.which("nvidia-smi"):
        output = subprocess.run(
            [
                "nvidia-smi",
                "--query-gpu=name,driver_version",
                "--format=csv,noheader",
            ],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        versions["nvidia_smi"] = output.strip()
        nvcc = build.find_nvcc()
        versions["nvcc"] = build.nvcc_release(nvcc) if nvcc else None
    return versions


def main(argv):
    """Builds if needed, checks, measures, writes."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    if keras.backend.backend() != "jax":
        raise app.UsageError(
            f"Keras runs on {keras.backend.backend()}. Set KERAS_BACKEND=jax."
        )
    if not loader.library_path("jax").exists():
        build.build(["jax"], build.find_nvcc())
    if fused_ops.binding() is None:
        sys.exit("The fused operations cannot be used here; see above.")
    errors = check_losses()
    is_right = {
        name: error <= TOLERANCES[name] for name, error in errors.items()
    }
    is_right["bad rows"] = check_bad_rows()
    is_right["half precision"] = check_half_precision()
    result = {
        "environment": environment(),
        "hardware": _hardware(),
        "largest_errors": errors,
        "is_right": is_right,
    }
    # Results so far are kept, whatever happens in the measurement.
    if _OUTPUT.value:
        atomic_files.write_json(_OUTPUT.value, result)
    if _CHECKS_ONLY.value:
        print(json.dumps(result, indent=1))
        sys.exit(None if all(is_right.values()) else "Not all is right.")
    on_gpu = jax.devices()[0].platform == "gpu"
    result["bandwidth"] = measure(GPU_SHAPES if on_gpu else CPU_SHAPES)
    if _OUTPUT.value:
        atomic_files.write_json(_OUTPUT.value, result)
    print(json.dumps(result, indent=1))
    if not all(is_right.values()):
        sys.exit("Not all is within tolerance.")


if __name__ == "__main__":
    app.run(main)
