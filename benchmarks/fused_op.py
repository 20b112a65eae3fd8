# SPDX-License-Identifier: Apache-2.0
"""The fused operations, stock operations and PyTorch: time and memory.

python benchmarks/fused_op.py

Times the loss and its gradient with respect to the logits on one thread. All
variants run in one process and in turns: every round calls each of them once,
in random order; first the fast ones, then the slow ones. Then the same of
bfloat16 logits and of the rejection scores, fused and stock. Then times the
bare C++ core against a memcpy of as many bytes, with one thread and two, and
measures the memory that a call takes. Takes about ten minutes; needs PyTorch
and g++. Writes results/fused_op.json, from which benchmarks/tables.py makes
its tables. Without AVX-512 vectors are half as wide: the file's name then ends
in "_without_avx512".
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SHAPES = ((128, 6), (128, 20), (256, 200), (1024, 1000), (256, 10000))
SECONDS_OF_A_SHAPE = 30.0
# For the variants that exist as fused and as stock operations only.
SECONDS_OF_PAIRS = 10.0
ROUNDS = (15, 400)
MEMORY_SHAPE = (1024, 10000)
PAIRS = ("bfloat16 logits", "rejection scores")
FUSED = ("fused, tf.function", "fused, XLA")
# The shortest code. Its squares cancel near an anchor and far from all anchors.
INEXACT = "inexact O(B N), XLA"
# The forms that people write, where they do not take too long.
LARGEST_CLASS_COUNT = {
    "direct differences, stock, tf.function": 200,
    "matrix product, stock, XLA": 1000,
    "PyTorch cdist": 1000,
    "PyTorch, the authors' formulation": 200,
}


def batch(rows, classes):
    """Logits around the anchors, and their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows).astype("int32")
    logits = rng.standard_normal((rows, classes)).astype("float32")
    logits[np.arange(rows), labels] += 10.0
    return logits, labels


def tensorflow_variants(logits, labels):
    """Functions that compute the mean loss and its gradient."""
    import tensorflow as tf

    from cac_tf.losses import cac_loss_from_logits
    from cac_tf.losses.cac import cac_loss

    z, y = tf.constant(logits), tf.constant(labels)
    anchors = 10.0 * tf.eye(logits.shape[1])

    def direct(z, y):
        differences = z[:, None, :] - anchors[None]
        squared = tf.reduce_sum(tf.square(differences), axis=-1)
        return cac_loss(y, tf.sqrt(squared))

    def matrix_product(z, y):
        squared = (
            tf.reduce_sum(z * z, axis=1, keepdims=True)
            - 2.0 * tf.matmul(z, anchors, transpose_b=True)
            + 100.0
        )
        return cac_loss(y, tf.sqrt(tf.maximum(squared, 0.0)))

    def short(z, y):
        squared = tf.reduce_sum(z * z, axis=1, keepdims=True) - 20.0 * z + 100.0
        distances = tf.sqrt(tf.maximum(squared, 0.0))
        own = tf.gather(distances, y, batch_dims=1)
        ratios = tf.exp(own[:, None] - distances)
        return tf.math.log(tf.reduce_sum(ratios, axis=1)) + 0.1 * own

    def anchored(z, y):
        return cac_loss_from_logits(y, z)

    def step(loss, jit_compile):
        @tf.function(jit_compile=jit_compile)
        def loss_and_gradient(z, y):
            with tf.GradientTape() as tape:
                tape.watch(z)
                mean = tf.reduce_mean(loss(z, y))
            return mean, tape.gradient(mean, z)

        def run():
            mean, gradient = loss_and_gradient(z, y)
            return mean.numpy(), gradient

        return run

    @tf.function
    def nothing(z, y):
        return z, y

    return {
        "fused, tf.function": step(anchored, jit_compile=False),
        "fused, XLA": step(anchored, jit_compile=True),
        "O(B N), stock, tf.function": step(anchored, jit_compile=False),
        "O(B N), stock, XLA": step(anchored, jit_compile=True),
        INEXACT: step(short, jit_compile=True),
        "matrix product, stock, XLA": step(matrix_product, jit_compile=True),
        "direct differences, stock, tf.function": step(
            direct, jit_compile=False
        ),
        "an empty tf.function": lambda: nothing(z, y),
    }


def pairs_of_variants(logits, labels):
    """Bfloat16 logits, and rejection scores: fused and stock operations."""
    import tensorflow as tf

    from cac_tf.losses import cac_loss_from_logits
    from cac_tf.scores.gamma import scores_of_anchors

    z, y = tf.constant(logits), tf.constant(labels)
    half = tf.cast(z, tf.bfloat16)

    def loss_and_gradient(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            mean = tf.reduce_mean(cac_loss_from_logits(y, z))
        return tape.gradient(mean, z), mean

    def scores(z):
        return tuple(scores_of_anchors(z, 10.0))

    def call(function, x):
        def run():
            result = function(x)
            return result[-1].numpy(), result[0]

        return run

    return {
        f"{what}, {kind}, {'XLA' if jit_compile else 'tf.function'}": call(
            tf.function(function, jit_compile=jit_compile), x
        )
        for what, function, x in zip(
            PAIRS, (loss_and_gradient, scores), (half, z), strict=True
        )
        for kind in ("fused", "stock")
        for jit_compile in (False, True)
    }


def torch_variants(logits, labels):
    """The same of PyTorch; `run()` gives (mean loss, gradient)."""
    import torch

    torch.set_num_threads(1)
    z = torch.from_numpy(logits)
    y = torch.from_numpy(labels).long()
    rows, classes = logits.shape
    anchors = 10.0 * torch.eye(classes)
    anchors64 = anchors.double()

    def backward(loss_of):
        leaf = z.clone().requires_grad_(True)
        loss = loss_of(leaf)
        loss.backward()
        return loss.item(), leaf.grad

    def from_distances(distances, others):
        own = distances.gather(1, y[:, None])
        gaps = own - distances.gather(1, others)
        tuplet = torch.log1p(gaps.exp().sum(dim=1))
        return (tuplet + 0.1 * own[:, 0]).mean()

    def others_of(labels_):
        return torch.tensor(
            [[j for j in range(classes) if j != label] for label in labels_]
        )

    ready = others_of(labels.tolist()) if classes <= 1000 else None

    def cdist(leaf):
        return from_distances(torch.cdist(leaf, anchors), ready)

    def authors(leaf):
        differences = (
            leaf.double()[:, None].expand(rows, classes, classes) - anchors64
        )
        # The list of other classes is made anew for every batch.
        return from_distances(differences.norm(dim=2), others_of(y.tolist()))

    return {
        "PyTorch cdist": lambda: backward(cdist),
        "PyTorch, the authors' formulation": lambda: backward(authors),
    }


def measure(rows, classes):
    """Microseconds of every variant, by name: median and 10th percentile."""
    logits, labels = batch(rows, classes)
    variants = {
        **tensorflow_variants(logits, labels),
        **torch_variants(logits, labels),
    }
    variants = {
        name: run
        for name, run in variants.items()
        if classes <= LARGEST_CLASS_COUNT.get(name, classes)
    }
    results = _traced(variants)
    for name, result in results.items():
        if "empty" not in name:
            # Other forms are less exact there: docs/benchmarks_speed.md.
            np.testing.assert_allclose(
                result[0], results[FUSED[0]][0], rtol=1e-4
            )
    copy = np.empty_like(logits)
    variants["memcpy"] = lambda: np.copyto(copy, logits)
    seconds = {}
    # A slow variant empties the caches for those that come after it.
    slow = {name for name in variants if name in LARGEST_CLASS_COUNT}
    for group in (variants.keys() - slow, slow | {FUSED[0]}):
        times = _in_turns({name: variants[name] for name in sorted(group)})
        seconds = {**times, **seconds}
    return _in_microseconds(seconds)


def measure_pairs(rows, classes):
    """The same for `pairs_of_variants`."""
    variants = pairs_of_variants(*batch(rows, classes))
    results = _traced(variants)
    for name, result in results.items():
        stock = results[name.replace("fused", "stock")]
        np.testing.assert_allclose(result[0], stock[0], rtol=1e-4)
    return _in_microseconds(_in_turns(variants, SECONDS_OF_PAIRS))


def _traced(variants):
    """The first results, by name; everything is compiled here, once for all."""
    from cac_tf import ops as fused_ops

    results = {}
    for name, run in variants.items():
        with (
            fused_ops.stock_operations()
            if "stock" in name
            else contextlib.nullcontext()
        ):
            results[name] = run()
        run()
    return results


def _in_microseconds(seconds):
    return {
        name: {
            "median_us": round(1e6 * float(np.median(values)), 1),
            "p10_us": round(1e6 * float(np.quantile(values, 0.1)), 1),
            "rounds": len(values),
        }
        for name, values in sorted(seconds.items())
    }


def _in_turns(variants, at_least=SECONDS_OF_A_SHAPE):
    """Seconds of every variant, each called once per round in random order."""
    order = np.random.default_rng(0)
    seconds = {name: [] for name in variants}
    started = time.perf_counter()
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and (time.perf_counter() - started > at_least):
            break
        for name in order.permutation(list(variants)):
            begin = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def measure_core(folder):
    """The bare C++ core: microseconds with one thread and with two."""
    program = pathlib.Path(folder) / "benchmark"
    core_flags = ("-O3", "-fno-math-errno", "-fno-trapping-math")
    subprocess.run(
        [
            *("g++", "-std=c++17", *core_flags, "-Wno-psabi", "-I."),
            "ops/core/anchored_cac_benchmark.cc",
            *("ops/core/anchored_cac.cc", "-pthread", "-o", str(program)),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    results = {}
    for rows, classes in SHAPES:
        results[f"{rows}x{classes}"] = {}
        for threads in (1, 2):
            output = subprocess.run(
                [program, *map(str, (rows, classes, threads, 500))],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            times = np.array(
                [line.split() for line in output.splitlines()], float
            )
            loss, gradient, scores, copy = np.median(times, axis=0) / 1e3
            results[f"{rows}x{classes}"][f"threads_{threads}"] = {
                "loss_us": round(loss, 1),
                "gradient_us": round(gradient, 1),
                "scores_us": round(scores, 1),
                "memcpy_us": round(copy, 1),
            }
    return results


def peak_growth(stock):
    """Bytes by which loss and gradient raise the peak of resident memory."""
    rows, classes = MEMORY_SHAPE
    # A first call of the function, on few rows, loads everything it needs.
    small, large = batch(2, classes), batch(rows, classes)

    import tensorflow as tf

    from cac_tf.losses import cac_loss_from_logits

    if stock:
        os.environ["CAC_TF_DISABLE_FUSED_OPS"] = "1"

    @tf.function(reduce_retracing=True)
    def gradient(z, y):
        with tf.GradientTape() as tape:
            tape.watch(z)
            mean = tf.reduce_mean(cac_loss_from_logits(y, z))
        return tape.gradient(mean, z)

    spec = gradient.get_concrete_function(
        tf.TensorSpec((None, classes), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    spec(*map(tf.constant, small))
    inputs = [tf.constant(part) for part in large]
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # Forget the peak.
    before = _resident("VmRSS")
    result = spec(*inputs)
    growth = _resident("VmHWM") - before
    assert result.shape == MEMORY_SHAPE
    return growth


def _resident(name):
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", status)[1])


def measure_memory():
    """Peak growth with fused and with stock operations, in (B, N) arrays."""
    array = 4 * np.prod(MEMORY_SHAPE)
    growth = {}
    for kind in ("fused", "stock"):
        output = subprocess.run(
            [sys.executable, __file__, "--memory", kind],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        growth[kind] = int(output.split()[-1])
    return {
        "shape": list(MEMORY_SHAPE),
        **{
            f"{kind}_arrays": round(float(value / array), 2)
            for kind, value in growth.items()
        },
    }


def summary(shapes):
    """The ratios that matter: to the best stock form and to an inexact one."""
    ratios = {}
    for name, variants in shapes.items():
        best_fused = min(variants[key]["median_us"] for key in FUSED)
        stock = {
            key: value["median_us"]
            for key, value in variants.items()
            if "stock" in key and not key.startswith(PAIRS)
        }
        best = min(stock, key=stock.get)
        ratios[name] = {
            "best_stock": best,
            "speed_up": round(stock[best] / best_fused, 2),
            "speed_up_tf_function": round(
                stock[best] / variants["fused, tf.function"]["median_us"], 2
            ),
            "speed_up_over_inexact": round(
                variants[INEXACT]["median_us"] / best_fused, 2
            ),
        }
    return ratios


def main():
    """Measures everything and writes the result."""
    import tensorflow as tf
    import torch

    from cac_tf import atomic_files
    from cac_tf import ops as fused_ops
    from cac_tf.experiments.environment import PROCESSORS
    from cac_tf.experiments.environment import environment

    tf.config.threading.set_intra_op_parallelism_threads(1)
    if fused_ops.binding() is None:
        sys.exit("The fused operations are not built: make ops")
    shapes = {}
    for rows, classes in SHAPES:
        name = f"{rows}x{classes}"
        shapes[name] = measure(rows, classes) | measure_pairs(rows, classes)
        print(name, json.dumps(shapes[name], indent=1), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        core = measure_core(folder)
    result = {
        "environment": environment(),
        "torch": torch.__version__,
        "threads": 1,
        "shapes": shapes,
        "ratios": summary(shapes),
        "core": core,
        "memory": measure_memory(),
    }
    has_avx512 = "avx512f" in pathlib.Path(PROCESSORS).read_text("utf-8")
    suffix = "" if has_avx512 else "_without_avx512"
    atomic_files.write_json(RESULTS / f"fused_op{suffix}.json", result)
    print(json.dumps({k: result[k] for k in ("ratios", "core", "memory")}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        print(peak_growth(stock=sys.argv[2] == "stock"))
    else:
        main()
