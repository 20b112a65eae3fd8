# SPDX-License-Identifier: Apache-2.0
"""What the rejection head costs a server.

    python benchmarks/serving.py

The benchmark network as a bare classifier (pixels to logits, one output)
beside the whole `serving_default` of an export: checks of the input,
distances to class means, scores, decision, eleven outputs. Both are
SavedModels. A C++ program loads and calls them as TensorFlow Serving does, on
one thread of one core, in turns. The place of a process's memory changes times
by a few per cent, so several processes are started, in both orders, and the
median over them counts; bare against bare is the control. Then
`encoded_images` is compared with TensorFlow's own decoding, which fails the
whole batch on one bad file.
"""

import io
import os
import pathlib
import subprocess
import tempfile

import keras
import numpy as np
import PIL.Image

import cac_tf
from cac_tf import atomic_files
from cac_tf.experiments.environment import environment
from cac_tf.models.image_classifier import image_parts

FOLDER = pathlib.Path(__file__).parent
SOURCE = FOLDER / "serving_latency.cc"
RESULT = FOLDER / "results" / "serving.json"
CLASSES = (10, 200)
# Requests in each process, by batch size; the first tenth is left out.
BATCHES = {1: 1000, 32: 50, 256: 10}
FILE_BATCHES = {1: 500, 32: 50}
# Pairs of processes, one for each order.
PAIRS = 4


def build(source, program):
    """Compiles a C++ program against the installed TensorFlow."""
    import tensorflow as tf

    subprocess.run(
        [
            *("g++", "-O2", "-w", source, *tf.sysconfig.get_compile_flags()),
            *("-Wl,--no-as-needed", f"-Wl,-rpath,{tf.sysconfig.get_lib()}"),
            *tf.sysconfig.get_link_flags(),
            *("-l:libtensorflow_cc.so.2", "-o", program),
        ],
        check=True,
    )


def classifier(num_classes):
    """The benchmark's network, untrained, with class means for centers."""
    keras.utils.set_random_seed(0)
    parts = image_parts(
        (32, 32, 3),
        [0.5] * 3,
        [0.25] * 3,
        cac_tf.models.openset_cnn(num_classes),
    )
    rng = np.random.default_rng(0)
    means = 10 * np.eye(num_classes)
    return cac_tf.OpenSetClassifier(
        parts.classifier(),
        [f"class {i}" for i in range(num_classes)],
        centers=means + rng.normal(0, 0.5, means.shape),
        threshold=5.0,
    )


def export_bare(model, folder):
    """Pixels to logits, and nothing else."""
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((None, 32, 32, 3), tf.float32, name="images")
    archive.add_endpoint(
        "serving_default",
        lambda images: {"logits": model.network(images)["logits"]},
        [spec],
    )
    archive.write_out(folder, verbose=False)


def export_plain_decoding(model, folder):
    """Files to logits with TensorFlow's decoder and resizing."""
    import tensorflow as tf

    def decode(file):
        pixels = tf.io.decode_image(file, 3, expand_animations=False)
        pixels = tf.ensure_shape(pixels, (None, None, 3))
        return tf.image.resize(pixels, (32, 32), antialias=True)

    def serve(images):
        pixels = tf.map_fn(decode, images, fn_output_signature=tf.float32)
        return {"logits": model.network(pixels)["logits"]}

    archive = keras.export.ExportArchive()
    archive.track(model)
    spec = tf.TensorSpec((None,), tf.string, name="images")
    archive.add_endpoint("serving_default", serve, [spec])
    archive.write_out(folder, verbose=False)


def seconds_of(program, data, batch, requests, pair):
    """Seconds of each request, (requests, 2), of one process."""
    command = [program, data, batch, requests]
    for folder, signature in pair:
        command += [folder, signature]
    core = sorted(os.sched_getaffinity(0))[0]
    result = subprocess.run(
        [*map(str, command)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    rows = [line.split() for line in result.stdout.splitlines()]
    return np.float64(rows)[requests // 10 :]


def compare(program, data, batch, requests, bare, served):
    """Milliseconds of both at p50 and p99, and the second's extra cost."""
    runs = []
    for _ in range(PAIRS):
        runs.append(seconds_of(program, data, batch, requests, [bare, served]))
        swapped = seconds_of(program, data, batch, requests, [served, bare])
        runs.append(swapped[:, ::-1])
    # (processes, percentiles, two)
    ms = np.array([np.percentile(1e3 * r, [50, 99], axis=0) for r in runs])
    more = 100 * (ms[:, :, 1] / ms[:, :, 0] - 1)
    middle = np.median(ms, axis=0)
    return {
        "processes": len(runs),
        "requests": requests,
        "bare_ms": {"p50": middle[0, 0], "p99": middle[1, 0]},
        "served_ms": {"p50": middle[0, 1], "p99": middle[1, 1]},
        "more_percent": {
            "p50": float(np.median(more[:, 0])),
            "p99": float(np.median(more[:, 1])),
        },
        "more_percent_p50_of_processes": sorted(more[:, 0].round(2).tolist()),
    }


def write_photographs(path, count):
    """JPEG files of 640 x 480 pixels, one per record."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(count):
            coarse = rng.integers(0, 256, (24, 32, 3), "uint8")
            file = io.BytesIO()
            image = PIL.Image.fromarray(coarse).resize((640, 480))
            image.save(file, "JPEG")
            writer.write(file.getvalue())


def main():
    """Measures everything and writes the result."""
    result = {"environment": environment(), "head": {}, "files": {}}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "serving_latency")
        build(SOURCE, program)
        pixels = os.path.join(folder, "pixels")
        rng = np.random.default_rng(0)
        images = rng.uniform(0, 255, (max(BATCHES), 32, 32, 3))
        images.astype("float32").tofile(pixels)
        files = os.path.join(folder, "files.records")
        write_photographs(files, max(FILE_BATCHES))
        models = {}
        for num_classes in CLASSES:
            model = classifier(num_classes)
            models["bare", num_classes] = os.path.join(
                folder, f"b{num_classes}"
            )
            models["served", num_classes] = os.path.join(
                folder, f"s{num_classes}"
            )
            export_bare(model, models["bare", num_classes])
            model.export(models["served", num_classes])
        plain = os.path.join(folder, "plain")
        export_plain_decoding(model, plain)

        def measure(part, name, *arguments):
            result[part][name] = compare(program, *arguments)
            print(name, result[part][name]["more_percent"], flush=True)

        for num_classes in CLASSES:
            bare = (models["bare", num_classes], "serving_default")
            served = (models["served", num_classes], "serving_default")
            for batch, count in BATCHES.items():
                name = f"N={num_classes}, batch {batch}"
                measure("head", name, pixels, batch, count, bare, served)
        measure("head", "control, batch 1", pixels, 1, BATCHES[1], bare, bare)
        for batch, count in FILE_BATCHES.items():
            decoding = (plain, "serving_default")
            served = (models["served", CLASSES[-1]], "encoded_images")
            name = f"640x480 JPEG, batch {batch}"
            measure("files", name, files, batch, count, decoding, served)
    atomic_files.write_json(RESULT, result)


if __name__ == "__main__":
    main()
