# SPDX-License-Identifier: Apache-2.0
"""Open-set layers in your own functional Keras model.

    python examples/embedding/embed_layers.py --images=photos --export_to=out/1

Trains a network from `keras.applications` with the CAC loss on a folder of
images (`photos/<class>/*`), adds distances to the anchors, rejection scores and
the decision after its logits, sets the threshold on held-out images, and
exports a SavedModel that returns a class or -1.

`cac_tf.OpenSetClassifier.from_classifier` does all this for you, and replaces
the anchors with class means. Use the layers if the model has to stay your own.
"""

import argparse

import keras
import numpy as np

import cac_tf


def build_backbone(size, weights):
    """MobileNetV2 without its top; random weights where none can be had."""
    options = {
        "include_top": False,
        "input_shape": (size, size, 3),
        "pooling": "avg",
    }
    if weights == "imagenet":
        try:
            return keras.applications.MobileNetV2(weights="imagenet", **options)
        except Exception as error:  # Keras raises a bare one.
            print(f"No ImageNet weights ({error}); starting from random ones.")
    backbone = keras.applications.MobileNetV2(weights=None, **options)
    for layer in backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # Of 0.999 the averages need thousands of steps.
            layer.momentum = 0.9
    return backbone


def build_classifier(num_classes, size, weights="imagenet"):
    """From pixels in 0...255 to logits."""
    images = keras.Input((size, size, 3), name="images")
    # What MobileNetV2 was trained on: [-1, 1].
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)
    x = build_backbone(size, weights)(x)
    # Logits have no activation, and stay float32 under mixed precision.
    logits = keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return keras.Model(images, logits)


def with_gamma(classifier):
    """The model with rejection scores, one for each class, small = it."""
    distances = cac_tf.layers.AnchoredDistance()(classifier.output)
    gamma = cac_tf.layers.RejectionScore(name="gamma")(distances)
    return keras.Model(classifier.input, gamma)


def with_decision(scoring, threshold):
    """The model that answers: a class index, or -1 for unknown."""
    decide = cac_tf.layers.OpenSetDecision(threshold, name="class_id")
    gamma = scoring.output
    return keras.Model(
        scoring.input, {"class_id": decide(gamma), "gamma": gamma}
    )


def load_images(folder, size):
    """All images of a folder as arrays, and the names of its classes."""
    data = keras.utils.image_dataset_from_directory(
        folder, image_size=(size, size), batch_size=None, shuffle=False
    )
    images, labels = zip(*data.as_numpy_iterator(), strict=True)
    return np.stack(images), np.array(labels), data.class_names


def main(arguments=None):
    """Trains, calibrates and exports."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", required=True, help="a folder a class")
    parser.add_argument("--export_to", required=True)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--weights", choices=["imagenet", "random"], default="imagenet"
    )
    flags = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)

    images, labels, names = load_images(flags.images, flags.size)
    order = np.random.default_rng(0).permutation(len(images))
    held_back, rest = np.split(order, [len(order) // 5])

    classifier = build_classifier(len(names), flags.size, flags.weights)
    # The largest logit is that of the nearest anchor.
    classifier.compile(
        keras.optimizers.Adam(1e-3),
        cac_tf.losses.CACLoss(),
        metrics=["accuracy"],
    )
    classifier.fit(
        images[rest],
        labels[rest],
        epochs=flags.epochs,
        validation_data=(images[held_back], labels[held_back]),
        verbose=2,
    )

    scoring = with_gamma(classifier)
    gamma = scoring.predict(images[held_back], verbose=0)
    threshold = cac_tf.decision.threshold_for_true_positive_rate(
        gamma.min(axis=1), 0.95
    )
    answering = with_decision(scoring, threshold)
    answering.export(flags.export_to, verbose=False)
    answers = answering.predict(images[held_back], verbose=0)
    is_accepted = answers["class_id"] != -1
    print(
        f"Classes: {', '.join(names)}. The threshold {threshold:.4g} accepts "
        f"{is_accepted.mean():.1%} of the images held back. SavedModel: "
        f"{flags.export_to}"
    )
    return answering


if __name__ == "__main__":
    main()
