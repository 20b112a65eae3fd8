# SPDX-License-Identifier: Apache-2.0
"""Methods that train one network with one loss."""

from cac_tf import layers
from cac_tf import metrics
from cac_tf import models
from cac_tf.methods.known_data import fit_to_known_data
from cac_tf.methods.method import Method
from cac_tf.models import networks


class SupervisedMethod(Method):
    """A backbone from the recipe, a loss on labels, then class means.

    A subclass defines `loss`, and may define `head` and `monitor`. If it sets
    `trains_on_negatives`, the negatives join the training images.
    """

    trains_on_negatives = False

    def loss(self, recipe):
        """The loss of a recipe, as `OpenSetClassifier.compile` takes it."""
        raise NotImplementedError

    def head(self, recipe, num_classes):
        """The distance head of a recipe."""
        return layers.AnchoredDistance(num_classes, name="distance_head")

    def monitor(self):
        """The metric whose smallest validation value decides the weights."""
        return metrics.AnchorLoss()

    def build_model(self, dataset, recipe, run):
        """A fresh classifier for a data set, compiled.

        Args:
            dataset: `OpenSetDataset`; gives image size, classes, statistics.
            recipe: of this method's recipe class.
            run: `training.TrainingRun`.

        Returns:
            Compiled `OpenSetClassifier`.
        """
        run.start()
        height, width, channels = dataset.image_shape
        mean, std = dataset.channel_statistics
        has_augmentation = recipe.scale < 1 or recipe.flip or recipe.rotation
        num_classes = len(dataset.class_names)
        model = models.OpenSetClassifier(
            networks.find(recipe.network)(
                num_classes,
                (height, width, channels),
                dropout=recipe.dropout,
                weight_decay=recipe.weight_decay,
                seed=run.seed,
            ),
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

    def training_examples(self, dataset):
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

    def train(self, dataset, recipe, run):
        model = self.build_model(dataset, recipe, run)
        run.fit(
            model,
            self.training_examples(dataset),
            dataset.validation,
            stages=recipe.stages,
            batch_size=recipe.batch_size,
            monitor=f"val_{self.monitor().name}" if recipe.keeps_best else None,
        )
        fit_to_known_data(model, dataset)
        return model
