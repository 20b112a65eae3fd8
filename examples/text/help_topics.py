# SPDX-License-Identifier: Apache-2.0
"""Classifies help texts by topic, or as about none of them.

    python examples/text/help_topics.py

The texts are the docstrings of packages that are installed with this one, so
nothing is downloaded. Three topics are known; docstrings about files, processes
and networks, from Python's standard library, are unknown. The classifier turns
texts into token ids, which Keras does on TensorFlow, and averages the word
embeddings. Its vocabulary is therefore part of the saved model.
"""

import argparse
import importlib
import os

import keras
import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import cac_tf

KNOWN = {
    "statistics": ["scipy.stats"],
    "signals": ["scipy.signal", "scipy.fft", "scipy.ndimage"],
    "neural networks": ["keras.layers", "keras.losses", "keras.optimizers"],
}
UNKNOWN = ["os", "shutil", "subprocess", "socket", "asyncio", "pathlib"]
WORDS, LENGTH = 4000, 50


def help_texts(modules):
    """The docstrings of the public names of modules, without repetitions."""
    texts = {}
    for module in map(importlib.import_module, modules):
        for name in dir(module):
            text = getattr(getattr(module, name), "__doc__", None) or ""
            if not name.startswith("_") and len(text.split()) >= 10:
                texts[text] = None
    return list(texts)


def make_classifier(num_topics, texts):
    """From texts to a logit for each topic; knows the words of some texts."""
    to_ids = keras.layers.TextVectorization(
        WORDS, output_sequence_length=LENGTH
    )
    to_ids.adapt(texts)
    classifier = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            to_ids,
            keras.layers.Embedding(WORDS, 32, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(num_topics),
        ]
    )
    classifier.compile(keras.optimizers.Adam(0.01), cac_tf.losses.CACLoss())
    return classifier


def main(arguments=None):
    """Trains on three topics, and tests on these and on another."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--output_dir", default="runs/help_topics")
    flags = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)

    by_topic = [help_texts(modules) for modules in KNOWN.values()]
    labels = np.repeat(range(len(by_topic)), list(map(len, by_topic)))
    x_train, x_rest, y_train, y_rest = train_test_split(
        *(np.concatenate(by_topic), labels),
        test_size=0.4,
        stratify=labels,
        random_state=0,
    )
    x_val, x_test, _, y_test = train_test_split(
        x_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0
    )

    classifier = make_classifier(len(KNOWN), x_train)
    classifier.fit(
        keras.ops.convert_to_tensor(x_train),
        y_train,
        epochs=flags.epochs,
        verbose=0,
    )
    model = cac_tf.OpenSetClassifier.from_classifier(
        classifier,
        (x_train, y_train),
        class_names=list(KNOWN),
        score="gamma",
    )
    model.calibrate(x_val, true_positive_rate=0.9)
    os.makedirs(flags.output_dir, exist_ok=True)
    model.save(os.path.join(flags.output_dir, "model.keras"))

    known = model.predict_open_set(x_test)
    unknown = model.predict_open_set(help_texts(UNKNOWN))
    scores = np.concatenate([known.unknown_score, unknown.unknown_score])
    found = {
        "accuracy": np.mean(known.predicted_class_id == y_test),
        "auroc": roc_auc_score(np.arange(len(scores)) >= len(x_test), scores),
        "known texts rejected": known.is_unknown.mean(),
        "unknown texts rejected": unknown.is_unknown.mean(),
    }
    print(f"{len(x_train)} texts to train on; tested on {len(scores)} others:")
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    return found


if __name__ == "__main__":
    main()
