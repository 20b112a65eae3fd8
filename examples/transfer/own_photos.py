# SPDX-License-Identifier: Apache-2.0
"""Transfer learning on your own photos: a pretrained network that can reject.

    python examples/transfer/own_photos.py --photos=photos --known=cat,dog

`photos` has a folder for each class. Classes that are not known are used only
as test data. A network from `keras.applications`, trained on ImageNet, is
adapted in three steps:

1. The network is frozen, and a new last layer learns the known classes.
2. The network is unfrozen and fine-tuned at a small learning rate.
3. `OpenSetClassifier.from_classifier` adds a score and a threshold, without
   training.
"""

import argparse
import os

import keras

import cac_tf


def build(num_classes, size, weights):
    """MobileNetV2 without its top, and a classifier that ends in logits."""
    base = keras.applications.MobileNetV2(
        input_shape=(size, size, 3),
        include_top=False,
        pooling="avg",
        weights=weights,
    )
    images = keras.Input((size, size, 3), name="images")
    # What MobileNetV2 was trained on: [-1, 1].
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)
    x = keras.layers.Dropout(0.2)(base(x))
    logits = keras.layers.Dense(num_classes, dtype="float32")(x)
    return base, keras.Model(images, logits)


def thaw(base):
    """Lets everything learn but batch normalization.

    A few photos are too few for new statistics of a batch. A layer of batch
    normalization that is frozen keeps those of ImageNet.
    """
    base.trainable = True
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False


def train(classifier, data, learning_rate, epochs):
    """One step of the training, by cross-entropy on logits."""
    classifier.compile(
        keras.optimizers.Adam(learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    classifier.fit(
        *data.train,
        validation_data=tuple(data.validation),
        batch_size=32,
        epochs=epochs,
        verbose=2,
    )


def main(arguments=None):
    """Trains, adds rejection, measures and saves."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--photos", required=True)
    parser.add_argument("--known", required=True, help="cat,dog,...")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument(
        "--weights", default="imagenet", help="or a file of weights"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--fine_epochs", type=int, default=10)
    parser.add_argument("--fine_rate", type=float, default=1e-5)
    parser.add_argument("--output_dir", default="runs/own_photos")
    flags = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)
    data = cac_tf.data.load_open_set_dataset(
        "folder",
        data_dir=flags.photos,
        known_classes=flags.known.split(","),
        image_size=flags.size,
    )
    base, classifier = build(len(data.class_names), flags.size, flags.weights)

    base.trainable = False
    train(classifier, data, 1e-3, flags.epochs)
    thaw(base)
    # Keras reads what is trainable when a model is compiled: `train` does it.
    train(classifier, data, flags.fine_rate, flags.fine_epochs)

    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        data.train,
        class_names=data.class_names,
        validation_data=data.validation,  # of which 95 % are accepted
    )
    evaluation = cac_tf.experiments.evaluate(model, data, "cross_entropy")
    for sentence in cac_tf.reporting.verdict(evaluation.metrics):
        print(sentence)
    os.makedirs(flags.output_dir, exist_ok=True)
    path = os.path.join(flags.output_dir, "model.keras")
    model.save(path)
    print(f"Try it: cac-demo --model={path}")
    return evaluation


if __name__ == "__main__":
    main()
