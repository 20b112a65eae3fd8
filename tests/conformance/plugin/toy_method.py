# SPDX-License-Identifier: Apache-2.0
"""A method of somebody else: nothing in cac_tf knows of this file.

An auto-encoder learns first. Then a classifier with learnt centers trains on
known images and on negatives, labelled -1; it carries the frozen auto-encoder
along and gives the error of reconstruction as an output of its own, which a
score reads, less the mean error of known images.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from cac_tf import losses
from cac_tf import methods
from cac_tf import metrics
from cac_tf import scores
from cac_tf.data import Examples
from cac_tf.layers import ClassDistances
from cac_tf.training import ClassifierTraining
from cac_tf.training import Stage


@keras.saving.register_keras_serializable(package="Toy")
class UniformOnNegatives(losses.Loss):
    """Pulls the softmax of negatives towards the uniform distribution."""

    NAME, TAKES_NEGATIVES = "toy_uniform", True

    def __init__(self, weight=1.0, **kwargs):
        super().__init__(**kwargs)
        self.weight = weight

    def call(self, y_true, y_pred):
        loss = ops.logsumexp(y_pred, axis=-1) - ops.mean(y_pred, axis=-1)
        is_negative = ops.equal(ops.reshape(y_true, (-1,)), -1)
        return ops.where(is_negative, self.weight * loss, 0.0)

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


@keras.saving.register_keras_serializable(package="Toy")
class GammaAndError(scores.Score):
    """The smallest gamma, and how much worse than usual a reconstruction is."""

    NAME, READS = "toy_gamma_and_error", ("gamma", "reconstruction_error")
    IS_FITTED_TO_DATA = True

    def start(self, context):
        return []

    def update(self, kept, batch):
        kept.append(batch["reconstruction_error"])

    def finish(self, kept, context):
        return {"usual_error": np.mean(np.concatenate(kept))}

    def call(self, gamma, reconstruction_error, *, usual_error):
        return ops.min(gamma, axis=-1) + reconstruction_error - usual_error


@dataclasses.dataclass(frozen=True)
class Recipe(methods.BaseRecipe):
    """Fields of its own beside some that other methods have too."""

    latent_width: int = methods.field(
        8, "Width of the toy's latent vectors.", at_least=1
    )
    negative_weight: float = methods.field(
        0.5, "Weight of the toy's negatives in the loss.", at_least=0
    )
    error_kind: str = methods.field(
        "squared",
        "How the toy measures reconstructions.",
        choices=("squared", "absolute"),
    )
    epochs: int = methods.field(3, "Epochs of each training.", at_least=1)
    learning_rate: float = methods.field(0.003, "Of Adam.", above=0)
    batch_size: int = methods.field(64, "Images in a step.", at_least=1)


@keras.saving.register_keras_serializable(package="Toy")
class ErrorOfReconstruction(keras.layers.Layer):
    """(B,) error between images and their reconstructions."""

    def __init__(self, kind, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind

    def call(self, images, reconstructions):
        difference = images - reconstructions
        if self.kind == "absolute":
            return ops.mean(ops.abs(difference), axis=-1)
        return ops.mean(ops.square(difference), axis=-1)

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


class Toy(methods.Method):
    """Two networks, two trainings, negatives, learnt centers."""

    name = "toy"
    recipe = Recipe
    scores = ("toy_gamma_and_error", "gamma")

    def preset(self, dataset, name="fair", vectors=None):
        return {}

    def train(self, dataset, recipe, run):
        run.start()
        layers = keras.layers
        inputs = keras.Input(dataset.image_shape, name="images")
        pixels = layers.Rescaling(1 / 255, name="scaled")(inputs)
        flat = layers.Flatten(name="flat")(pixels)
        width = int(np.prod(dataset.image_shape))
        latents = layers.Dense(
            recipe.latent_width, activation="relu", name="latents"
        )(flat)
        decoded = layers.Dense(width, name="decoded")(latents)
        auto_encoder = keras.Model(inputs, decoded, name="auto_encoder")
        auto_encoder.compile(keras.optimizers.Adam(recipe.learning_rate), "mse")

        def with_targets(examples):
            images = np.float32(examples.images[:])
            return Examples(images, images.reshape(len(images), width) / 255)

        run.fit(
            auto_encoder,
            with_targets(dataset.train),
            with_targets(dataset.validation),
            stages=[Stage(recipe.epochs)],
            batch_size=recipe.batch_size,
            name="auto_encoder",
        )
        auto_encoder.trainable = False
        hidden = layers.Dense(32, activation="relu", name="hidden")(flat)
        hidden = layers.Dropout(0.1, seed=run.seed, name="dropout")(hidden)
        logits = layers.Dense(len(dataset.class_names), name="logits")(hidden)
        error = ErrorOfReconstruction(recipe.error_kind, name="error")(
            flat, decoded
        )
        distances = ClassDistances(
            len(dataset.class_names), name="class_distances"
        )
        classifier = keras.Model(
            inputs,
            {
                "logits": logits,
                "class_distances": distances(logits),
                "latents": latents,
                "reconstruction_error": error,
            },
            name="with_decoder",
        )
        training = ClassifierTraining(classifier)
        training.compile(
            keras.optimizers.Adam(recipe.learning_rate),
            [
                losses.CACLoss(from_distances=True),
                UniformOnNegatives(recipe.negative_weight),
            ],
            [metrics.KnownAccuracy(from_distances=True)],
        )
        known, negatives = dataset.train, dataset.negatives
        train = Examples(
            np.concatenate([known.images[:], negatives.images[:]]),
            np.r_[known.labels, np.full(negatives.size, -1)],
        )
        run.fit(
            training,
            train,
            dataset.validation,
            stages=[
                Stage(recipe.epochs),
                Stage(recipe.epochs, recipe.learning_rate / 10),
            ],
            batch_size=recipe.batch_size,
            monitor="val_loss",
        )
        return classifier


losses.register(UniformOnNegatives)
scores.register(GammaAndError)
methods.register(Toy())
