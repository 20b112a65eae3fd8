# SPDX-License-Identifier: Apache-2.0
"""Methods that train one network with one loss."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from cac_tf import layers
from cac_tf import metrics
from cac_tf import models
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.methods.method import Method
from cac_tf.models import networks

if TYPE_CHECKING:
    import keras

    from cac_tf.data.open_set_dataset import Examples
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier
    from cac_tf.training.run import TrainingRun


class SupervisedMethod(Method):
    """A backbone from the recipe, a loss on labels, then class means.

    A subclass defines `loss`, and may define `head`, `backbone` and `monitor`.
    If it sets `trains_on_negatives`, the negatives join the training images.
    """

    trains_on_negatives = False

    def loss(self, recipe: Any) -> Any:
        """The loss of a recipe, as `OpenSetClassifier.compile` takes it."""
        raise NotImplementedError

    def head(self, recipe: Any, num_classes: int) -> layers.AnchoredDistance:
        """The distance head of a recipe."""
        return layers.AnchoredDistance(num_classes, name="distance_head")

    def monitor(self) -> keras.metrics.Metric:
        """The metric whose smallest validation value decides the weights."""
        return metrics.AnchorLoss()

    def backbone(
        self,
        dataset: OpenSetDataset,
        recipe: Any,
        run: TrainingRun,
        input_shape: tuple[int, ...] | None = None,
    ) -> keras.Model:
        """The network of a recipe, which may have more outputs than logits.

        Args:
            dataset, recipe, run: as of `build_model`.
            input_shape: of the network; None: that of the images.

        Returns:
            Keras model of normalized images, as `OpenSetClassifier` takes it.
        """
        return networks.find(recipe.network)(
            len(dataset.class_names),
            input_shape or dataset.image_shape,
            dropout=recipe.dropout,
            weight_decay=recipe.weight_decay,
            seed=run.seed,
        )

    def build_model(
        self, dataset: OpenSetDataset, recipe: Any, run: TrainingRun
    ) -> OpenSetClassifier:
        """A fresh classifier for a data set, compiled.

        Args:
            dataset: `OpenSetDataset`; gives image size, classes, statistics.
            recipe: of this method's recipe class.
            run: `training.TrainingRun`.

        Returns:
            Compiled `OpenSetClassifier`.
        """
        run.start()
        height, width, _ = dataset.image_shape
        mean, std = dataset.channel_statistics
        has_augmentation = recipe.scale < 1 or recipe.flip or recipe.rotation
        num_classes = len(dataset.class_names)
        model = models.OpenSetClassifier(
            self.backbone(dataset, recipe, run),
            dataset.class_names,
            head=self.head(recipe, num_classes),
            preprocessing=layers.ImagePreprocessing(height, width, mean, std),
            augmentation=layers.AffineAugmentation(
                recipe.scale, recipe.flip, recipe.rotation, seed=run.seed
            )
            if has_augmentation
            else None,
            score=run.score or self.scores[0],
            tta=run.tta,
        )
        _check_enough_for(model.score, dataset)
        images = self.training_examples(dataset).size
        steps_per_epoch = -(-images // recipe.batch_size)
        # The monitored metric may be one of the first two: once is enough.
        watched = {
            metric.name: metric
            for metric in (
                metrics.AnchorLoss(),
                metrics.TupletLoss(),
                self.monitor(),
            )
        }
        model.compile(
            optimizer=recipe.optimizer(steps_per_epoch),
            loss=self.loss(recipe),
            metrics=["accuracy", *watched.values()],
        )
        return model

    def training_examples(self, dataset: OpenSetDataset) -> Examples:
        """The `Examples` that the network is trained on.

        Raises:
            ValueError: negatives are needed, and there are none.
        """
        if not self.trains_on_negatives:
            return dataset.train
        if not dataset.negatives.size:
            raise ValueError(
                f"The method {self.name} trains on negatives, and these data "
                "have none: name their classes, "
                "negative_classes=[...], or give x_negatives in an .npz file."
            )
        return dataset.train.joined(dataset.negatives)

    def fit_classifier(
        self,
        model: OpenSetClassifier,
        dataset: OpenSetDataset,
        recipe: Any,
        run: TrainingRun,
        samples: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Trains a classifier of `build_model` by the schedule of the recipe.

        Args:
            model: of `build_model`.
            dataset, recipe, run: as of `train`.
            samples: as of `TrainingRun.fit`.
        """
        run.fit(
            model,
            self.training_examples(dataset),
            dataset.validation,
            stages=recipe.stages,
            batch_size=recipe.batch_size,
            monitor=f"val_{self.monitor().name}" if recipe.keeps_best else None,
            samples=samples,
        )

    def train(
        self, dataset: OpenSetDataset, recipe: Any, run: TrainingRun
    ) -> OpenSetClassifier:
        model = self.build_model(dataset, recipe, run)
        self.fit_classifier(model, dataset, recipe, run)
        fit_to_known_data(model, dataset)
        return model


def _check_enough_for(score, dataset):
    """Raises ValueError if a score could not be fitted after the training."""
    held_out = score.WANTS_HELD_OUT_DATA
    examples = dataset.validation if held_out else dataset.train
    counts = np.bincount(
        np.asarray(examples.labels), minlength=len(dataset.class_names)
    )
    fewest = score.FEWEST_OF_A_CLASS
    if score.IS_FITTED_TO_DATA and counts.min() < fewest:
        which = "validation" if held_out else "training"
        raise ValueError(
            f"The score {score.name!r} needs at least {fewest} {which} images "
            f"of each class; class {dataset.class_names[counts.argmin()]!r} "
            f"has {counts.min()}."
        )
