# SPDX-License-Identifier: Apache-2.0
"""What a method of the paper's tables consists of, and how it is trained."""

import collections.abc
import dataclasses

import keras

from cac_tf.layers import AffineAugmentation
from cac_tf.layers import ImagePreprocessing
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.metrics import AnchorLoss
from cac_tf.metrics import TupletLoss
from cac_tf.models import NETWORKS
from cac_tf.models import OpenSetClassifier
from cac_tf.training import fit_resumable


@dataclasses.dataclass(frozen=True)
class Method:
    """How a model is trained, and how its inputs can be scored.

    A method is one file in this folder with a `METHOD` of this class; the
    binaries find it by its name.
    """

    name: str
    recipe: type  # `Recipe` or a subclass with fields of its own
    # Names of `cac_tf.scores` that an evaluation compares if no others are
    # asked for; the first is the method's own.
    scores: tuple
    loss: collections.abc.Callable  # recipe -> Keras loss on distances
    # Class of the metric by whose smallest validation value weights are chosen.
    monitor: type
    magnitude: collections.abc.Callable = lambda recipe: 10.0

    def build_model(self, dataset, recipe, seed, score=None, views=None):
        """A fresh classifier for a data set, compiled.

        Makes the process deterministic: the same seed gives the same weights.

        Args:
            dataset: `OpenSetDataset`; gives image size, classes, statistics.
            recipe: of this method's recipe class.
            seed: of initialisation, dropout and augmentation.
            score: as of `OpenSetClassifier`; None for the method's own.
            views: as of `OpenSetClassifier`.

        Returns:
            Compiled `OpenSetClassifier`.
        """
        keras.utils.set_random_seed(seed)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        height, width, channels = dataset.image_shape
        mean, std = dataset.channel_statistics
        has_augmentation = recipe.scale < 1 or recipe.flip or recipe.rotation
        model = OpenSetClassifier(
            NETWORKS[recipe.network](
                len(dataset.class_names),
                (height, width, channels),
                dropout=recipe.dropout,
                weight_decay=recipe.weight_decay,
                seed=seed,
            ),
            dataset.class_names,
            magnitude=self.magnitude(recipe),
            preprocessing=ImagePreprocessing(height, width, mean, std),
            augmentation=AffineAugmentation(
                recipe.scale, recipe.flip, recipe.rotation, seed=seed
            )
            if has_augmentation
            else None,
            score=score or self.scores[0],
            views=views,
        )
        steps_per_epoch = -(-dataset.train.size // recipe.batch_size)
        # The monitored one may be among the first two: once is enough.
        metrics = dict.fromkeys((AnchorLoss, TupletLoss, self.monitor))
        model.compile(
            optimizer=recipe.optimizer(steps_per_epoch),
            loss=self.loss(recipe),
            metrics=["accuracy", *(metric() for metric in metrics)],
        )
        return model

    def train(
        self,
        model,
        dataset,
        recipe,
        seed,
        checkpoint,
        callbacks=(),
        after_epoch=None,
    ):
        """Trains a model to the end, but for the threshold.

        Args:
            model: of `build_model`, with the same data set, recipe and seed.
            dataset: `OpenSetDataset`.
            recipe: of this method's recipe class.
            seed: of the order of the examples.
            checkpoint: path of the checkpoint file; if it exists, training
                goes on from there.
            callbacks: Keras callbacks.
            after_epoch: as in `fit_resumable`.

        Returns:
            `TrainingRecord`.
        """
        keeps_best = recipe.schedule != "cosine"
        record = fit_resumable(
            model,
            dataset.train,
            dataset.validation,
            stages=recipe.stages,
            batch_size=recipe.batch_size,
            seed=seed,
            checkpoint=checkpoint,
            monitor=f"val_{self.monitor().name}" if keeps_best else None,
            callbacks=callbacks,
            after_epoch=after_epoch,
        )
        fit_to_known_data(model, dataset)
        return record
