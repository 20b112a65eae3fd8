# SPDX-License-Identifier: Apache-2.0
"""Class Anchor Clustering: its recipe, its model, its training."""

import dataclasses

import keras

from cac_tf.layers import AffineAugmentation
from cac_tf.layers import AnchoredDistance
from cac_tf.layers import ImagePreprocessing
from cac_tf.losses import CACLoss
from cac_tf.metrics import AnchorLoss
from cac_tf.metrics import TupletLoss
from cac_tf.models import OpenSetClassifier
from cac_tf.models import openset_cnn
from cac_tf.training import fit_resumable


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides how a model is trained, besides data and seed.

    The defaults are those of `presets.photographs`.
    """

    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-3
    dropout: float = 0.2
    scale: float = 0.5
    flip: float = 0.5
    rotation: float = 10.0
    magnitude: float = 10.0
    anchor_weight: float = 0.1

    def __post_init__(self):
        # These check their own arguments.
        AffineAugmentation(self.scale, self.flip, self.rotation)
        AnchoredDistance(2, self.magnitude)
        CACLoss(self.anchor_weight)
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1; got {getattr(self, name)}."
                )
        if not self.learning_rate > 0:
            raise ValueError(
                f"learning_rate must be > 0; got {self.learning_rate}."
            )
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(
                f"momentum must be in [0, 1); got {self.momentum}."
            )
        if not self.weight_decay >= 0:
            raise ValueError(
                f"weight_decay must be >= 0; got {self.weight_decay}."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1); got {self.dropout}.")


def build_model(dataset, recipe, seed):
    """The benchmark network with the open-set head, compiled.

    Makes the process deterministic: the same seed gives the same weights.

    Args:
        dataset: `OpenSetDataset`; gives image size, classes and statistics.
        recipe: `Recipe`.
        seed: of initialisation, dropout and augmentation.

    Returns:
        Compiled `OpenSetClassifier`.

    Example:

    >>> from cac_tf.data import load_open_set_dataset
    >>> digits = load_open_set_dataset("digits", trial=0)
    >>> model = build_model(digits, Recipe(epochs=5, flip=0.0), seed=0)
    >>> model.class_names
    ('0', '1', '2', '4', '5', '9')
    """
    keras.utils.set_random_seed(seed)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    height, width, channels = dataset.image_shape
    mean, std = dataset.channel_statistics
    has_augmentation = recipe.scale < 1 or recipe.flip or recipe.rotation
    model = OpenSetClassifier(
        openset_cnn(
            len(dataset.class_names),
            (height, width, channels),
            dropout=recipe.dropout,
            weight_decay=recipe.weight_decay,
            seed=seed,
        ),
        dataset.class_names,
        magnitude=recipe.magnitude,
        preprocessing=ImagePreprocessing(height, width, mean, std),
        augmentation=AffineAugmentation(
            recipe.scale, recipe.flip, recipe.rotation, seed=seed
        )
        if has_augmentation
        else None,
    )
    steps_per_epoch = -(-dataset.train.size // recipe.batch_size)
    model.compile(
        optimizer=keras.optimizers.SGD(
            keras.optimizers.schedules.CosineDecay(
                recipe.learning_rate, recipe.epochs * steps_per_epoch
            ),
            momentum=recipe.momentum,
        ),
        loss=CACLoss(recipe.anchor_weight),
        metrics=["accuracy", AnchorLoss(), TupletLoss()],
    )
    return model


def train(model, dataset, recipe, seed, checkpoint, callbacks=()):
    """Trains a model: from anchors to class means, without a threshold.

    Args:
        model: of `build_model`, with the same data set, recipe and seed.
        dataset: `OpenSetDataset`.
        recipe: `Recipe`.
        seed: of the order of the examples.
        checkpoint: path of the checkpoint file; if it exists, training goes
            on from there.
        callbacks: Keras callbacks.

    Returns:
        One dict of logs per epoch.
    """
    history = fit_resumable(
        model,
        dataset.train,
        dataset.validation,
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        seed=seed,
        checkpoint=checkpoint,
        callbacks=callbacks,
    )
    model.fit_centres(*dataset.train)
    return history
