# SPDX-License-Identifier: Apache-2.0
"""Makes a classifier that you have already trained say "unknown".

    python examples/any_classifier/add_rejection.py --network=functional
    python examples/any_classifier/add_rejection.py --network=mobilenet

Trains one of two ordinary Keras classifiers with cross-entropy on
scikit-learn's digits, leaving some digits out: a functional model that ends in
a softmax, or MobileNetV2 from `keras.applications`. Then, without further
training, it adds a rejection score, a threshold, a report and a SavedModel. The
part to copy is `add_rejection`.
"""

import argparse
import os

import keras

import cac_tf
from cac_tf.reporting import write_report

SCORES = ("max_softmax", "energy", "knn")


def functional_classifier(num_classes):
    """Images of 8 x 8 pixels, 0...255, to probabilities."""
    images = keras.Input((8, 8, 1), name="images")
    x = keras.layers.Rescaling(1 / 255)(images)
    x = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = keras.layers.Conv2D(64, 3, strides=2, activation="relu")(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu", name="penultimate")(x)
    outputs = keras.layers.Dense(num_classes, activation="softmax")(x)
    return keras.Model(images, outputs)


def mobilenet_classifier(num_classes):
    """The same by MobileNetV2, from random weights."""
    images = keras.Input((8, 8, 1), name="images")
    x = keras.layers.Resizing(32, 32)(images)
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(x)
    x = keras.layers.Concatenate()([x, x, x])
    network = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, weights=None, classes=num_classes
    )
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            # Of 0.999 the averages need thousands of steps.
            layer.momentum = 0.9
    return keras.Model(images, network(x))


NETWORKS = {
    "functional": (functional_classifier, 30),
    "mobilenet": (mobilenet_classifier, 40),
}


def add_rejection(classifier, data, score, output_dir):
    """Score, threshold, report and SavedModel for a trained classifier."""
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        data.train,
        class_names=data.class_names,
        score=score,
        validation_data=data.validation,  # of which 95 % are accepted
    )
    model.save(os.path.join(output_dir, "model.keras"))
    model.export(os.path.join(output_dir, "serving", "1"))
    evaluation = cac_tf.experiments.evaluate(
        model, data, method="cross_entropy", scores=SCORES
    )
    write_report(os.path.join(output_dir, "report.html"), evaluation, data)
    return evaluation


def main(arguments=None):
    """Trains a classifier, and adds rejection to it."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--network", choices=NETWORKS, default="functional")
    parser.add_argument("--score", default="knn")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--output_dir", default="runs/any_classifier")
    flags = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)
    # Six digits are known; the other four are in the test data alone.
    data = cac_tf.data.load_open_set_dataset("digits")

    build, epochs = NETWORKS[flags.network]
    classifier = build(len(data.class_names))
    classifier.compile(
        keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy"
    )
    classifier.fit(
        *data.train, epochs=flags.epochs or epochs, batch_size=64, verbose=2
    )

    os.makedirs(flags.output_dir, exist_ok=True)
    evaluation = add_rejection(classifier, data, flags.score, flags.output_dir)
    for name, measures in evaluation.metrics["scores"].items():
        print(f"AUROC by {name:>23}: {measures['auroc']:.4f}")
    print(f"Report: {os.path.join(flags.output_dir, 'report.html')}")
    return evaluation


if __name__ == "__main__":
    main()
