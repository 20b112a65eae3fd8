# SPDX-License-Identifier: Apache-2.0
"""A method of somebody else: nothing in cac_tf knows of this file.

An auto-encoder learns first. Then a classifier with learnt centers trains on
known images and on negatives, labelled -1; its backbone carries the frozen
auto-encoder along and gives the error of reconstruction as an output of its
own, which a score reads.
"""

import dataclasses

import keras
import numpy as np
from keras import ops

from cac_tf import losses
from cac_tf import methods
from cac_tf import scores
from cac_tf.data import Examples
from cac_tf.layers import AnchoredDistance
from cac_tf.models import OpenSetClassifier
from cac_tf.training import Stage


@keras.saving.register_keras_serializable(package="Toy")
class UniformOnNegatives(losses.Loss):
    """Pulls the softmax of negatives towards the uniform distribution."""

    NAME, READS, TAKES_NEGATIVES = "toy_uniform", ("logits",), True

    def call(self, y_true, y_pred):
        loss = ops.logsumexp(y_pred, axis=-1) - ops.mean(y_pred, axis=-1)
        is_negative = ops.equal(ops.reshape(y_true, (-1,)), -1)
        return ops.where(is_negative, loss, 0.0)


@keras.saving.register_keras_serializable(package="Toy")
class GammaAndError(scores.Score):
    """The smallest gamma and the error of reconstruction, added."""

    NAME, READS = "toy_gamma_and_error", ("gamma", "reconstruction_error")
    IS_NON_NEGATIVE = True

    def call(self, gamma, reconstruction_error):
        return ops.min(gamma, axis=-1) + reconstruction_error


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

    def preset(self, dataset):
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
        backbone = keras.Model(
            inputs,
            {
                "logits": logits,
                "latents": latents,
                "reconstruction_error": error,
            },
            name="with_decoder",
        )
        model = OpenSetClassifier(
            backbone,
            dataset.class_names,
            head=AnchoredDistance(len(dataset.class_names), learnt=True),
            score=run.score or self.scores[0],
            tta=run.tta,
        )
        model.compile(
            keras.optimizers.Adam(recipe.learning_rate),
            loss=[losses.CACLoss(), UniformOnNegatives()],
            loss_weights=[1.0, recipe.negative_weight],
            metrics=["accuracy"],
        )
        known, negatives = dataset.train, dataset.negatives
        train = Examples(
            np.concatenate([known.images[:], negatives.images[:]]),
            np.r_[known.labels, np.full(negatives.size, -1)],
        )
        run.fit(
            model,
            train,
            dataset.validation,
            stages=[
                Stage(recipe.epochs),
                Stage(recipe.epochs, recipe.learning_rate / 10),
            ],
            batch_size=recipe.batch_size,
            monitor="val_loss",
        )
        return model


losses.register(UniformOnNegatives)
scores.register(GammaAndError)
methods.register(Toy())
