# SPDX-License-Identifier: Apache-2.0
"""Many threads call one SavedModel at the same time.

Every thread gets the answers that one thread gets alone.
"""

import concurrent.futures

import keras
import numpy as np
import tensorflow as tf

import cac_tf
from cac_tf.data.sources.digits import load_digits
from cac_tf.export import write_model_folder
from tests.serving import references

_SIZES = (1, 2, 7, 16)


def prepare(folder):
    """The functions of an export, and the pictures it answers."""
    keras.utils.set_random_seed(0)
    examples, _ = load_digits()
    images, labels = examples
    known = labels < 3
    classifier = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            cac_tf.layers.ImagePreprocessing(8, 8),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    classifier.compile("adam", cac_tf.losses.CACLoss())
    classifier.fit(images[known], labels[known], epochs=2, verbose=0)
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (images[known], labels[known]),
        class_names=["zero", "one", "two"],
        score="gamma",
    )
    model.calibrate(images[known], true_positive_rate=0.9)
    path = write_model_folder(model, folder / "serving", 1)
    loaded = tf.saved_model.load(str(path))
    return loaded, dict(loaded.signatures), images


def _inputs(signature, function, images):
    """The arguments of a signature for these pictures; None for others."""
    ((name, spec),) = function.structured_input_signature[1].items()
    if spec.dtype == tf.string:
        files = [references.encoded(image) for image in images]
        if signature == "classify":
            files = references.examples(files)
        return {name: tf.constant(files)}
    if spec.shape.rank != 4:
        return None
    return {name: tf.constant(images, spec.dtype)}


def case(rng, folder, prepared):
    _, functions, images = prepared
    requests = []
    for _ in range(24):
        name = str(rng.choice(sorted(functions)))
        rows = rng.integers(len(images), size=rng.choice(_SIZES))
        function = functions[name]
        if len(function.structured_input_signature[1]) != 1:
            continue
        inputs = _inputs(name, function, images[rows])
        if inputs is not None:
            requests.append((name, inputs))
    assert requests

    def answer(request):
        name, inputs = request
        return {k: v.numpy() for k, v in functions[name](**inputs).items()}

    expected = [answer(request) for request in requests]
    num_threads = int(rng.integers(2, 33))
    order = rng.permutation(np.repeat(np.arange(len(requests)), 4))
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        answers = pool.map(lambda i: answer(requests[i]), order)
        for i, found in zip(order, answers, strict=True):
            for key, values in expected[i].items():
                if values.dtype.kind == "f":
                    np.testing.assert_allclose(found[key], values, rtol=1e-5)
                else:
                    np.testing.assert_array_equal(found[key], values)
    return f"{len(order)} requests, up to {-(-num_threads // 8) * 8} threads"
