# SPDX-License-Identifier: Apache-2.0
"""Heads on kept features of a frozen network, for the other scripts here."""

import keras
import numpy as np

from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.losses import CACLoss
from cac_tf.methods.presets import vectors
from cac_tf.models.features import with_features

LOSSES = ("cac", "cross_entropy")
_ROWS = 1024


def trained_head(
    features,
    labels,
    num_classes,
    *,
    loss="cac",
    hidden=512,
    magnitude=MAGNITUDE,
    epochs=30,
    learning_rate=1e-3,
    batch_size=32,
    seed=0,
):
    """`z = W2 relu(W1 f + b1) + b2`, trained by Adam.

    Args:
        features: (n, E) float32, f.
        labels: (n,) class indices.
        num_classes: N.
        loss: "cac" or "cross_entropy".
        hidden: width of the hidden layer; None: `z = W f + b`.
        magnitude: length of the anchors of "cac".
        epochs, learning_rate, batch_size: of the training.
        seed: of the first weights and of the order of the rows.

    Returns:
        Keras model, (B, E) -> (B, N) logits.

    Raises:
        ValueError: another loss.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {LOSSES}; got {loss!r}.")
    head = _head(features.shape[1], num_classes, hidden, seed)
    head.compile(
        keras.optimizers.Adam(learning_rate),
        CACLoss(magnitude)
        if loss == "cac"
        else keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    rows = _Shuffled(features, labels, batch_size, seed)
    head.fit(rows, epochs=epochs, shuffle=False, verbose=0)
    return head


def head_of_vectors(features, labels, num_classes, **settings):
    """A trained head, and the recipe of so many vectors that it was trained by.

    Args:
        features, labels, num_classes: as of `trained_head`.
        **settings: its `loss`, `hidden` and `seed`.

    Returns:
        Keras model, and the dict of the recipe.
    """
    recipe = vectors(len(labels))
    names = ("magnitude", "epochs", "learning_rate", "batch_size")
    of_recipe = {name: recipe[name] for name in names}
    head = trained_head(features, labels, num_classes, **of_recipe, **settings)
    return head, recipe


def outputs_of(head, features):
    """What `OpenSetClassifier.from_outputs` takes, of a head.

    Args:
        head: of `trained_head`.
        features: (n, E) float32.

    Returns:
        Dict of `features`, what the last layer reads, and `logits`.
    """
    both, _ = with_features(head)
    values = both.predict(features, _ROWS, verbose=0)
    return dict(zip(("features", "logits"), values, strict=True))


def _head(width, num_classes, hidden, seed):
    features = keras.Input((width,), name="embedding")
    x = features
    if hidden is not None:
        x = keras.layers.Dense(
            hidden,
            "relu",
            kernel_initializer=keras.initializers.GlorotUniform(seed),
            name="features",
        )(x)
    logits = keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.GlorotUniform(seed + 1),
        dtype="float32",
        name="logits",
    )(x)
    return keras.Model(features, logits, name="head")


class _Shuffled(keras.utils.PyDataset):
    """Batches in an order of the seed's own, a new one in each epoch.

    Keras' own order is drawn from the state of the whole process.
    """

    def __init__(self, x, y, batch_size, seed):
        super().__init__()
        self._x, self._y, self._batch_size = x, y, batch_size
        self._rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self._x) // self._batch_size)

    def __getitem__(self, batch):
        start = batch * self._batch_size
        rows = self._order[start : start + self._batch_size]
        return self._x[rows], self._y[rows]

    def on_epoch_end(self):
        self._order = self._rng.permutation(len(self._x))
