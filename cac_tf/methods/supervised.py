# SPDX-License-Identifier: Apache-2.0
"""Methods that train one network with one loss."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from cac_tf import layers
from cac_tf import lazy
from cac_tf import metrics
from cac_tf import models
from cac_tf import training
from cac_tf.methods.method import Method
from cac_tf.models import networks

# It needs Keras, which `--help` does without.
text_vectors = lazy.module("cac_tf.models.text_vectors")

if TYPE_CHECKING:
    import keras

    from cac_tf.data.open_set_dataset import Examples
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.training.run import TrainingRun


class SupervisedMethod(Method):
    """A backbone from the recipe, and a loss on labels.

    A subclass defines `loss`, and may define `backbone` and `watched`.
    If it sets `trains_on_negatives`, the negatives join the training images.
    """

    trains_on_negatives = False

    @property
    def takes_vectors(self) -> bool:  # type: ignore[override]
        """Those that train the parts of an image's classifier do not."""
        return type(self).train is SupervisedMethod.train

    def loss(self, recipe: Any) -> Any:
        """The loss of a recipe, as `ClassifierTraining.compile` takes it."""
        raise NotImplementedError

    def watched(self, recipe: Any) -> list[keras.metrics.Metric]:
        """Metrics of a recipe; the smallest value of the first decides.

        Its smallest value on validation data decides which weights are kept.
        """
        return [
            metrics.CrossEntropy(),
            metrics.AnchorLoss(),
            metrics.TupletLoss(),
        ]

    def backbone(
        self,
        dataset: OpenSetDataset,
        recipe: Any,
        run: TrainingRun,
        input_shape: tuple[int, ...] | None = None,
    ) -> keras.Model:
        """The network of a recipe, which may have more outputs than logits.

        Args:
            dataset, recipe, run: as of `parts`.
            input_shape: of the network; None: that of the inputs.

        Returns:
            Keras model of normalized inputs.

        Raises:
            ValueError: a network that does not take inputs of this shape.
        """
        shape = input_shape or dataset.image_shape
        try:
            return networks.find(recipe.network)(
                len(dataset.class_names),
                shape,
                dropout=recipe.dropout,
                weight_decay=recipe.weight_decay,
                seed=run.seed,
            )
        except ValueError as error:
            if len(shape) == 3:
                raise
            raise ValueError(
                f"network={recipe.network} is for images and does not accept "
                f"inputs of shape {shape}. network=mlp accepts any shape."
            ) from error

    def parts(
        self, dataset: OpenSetDataset, recipe: Any, run: TrainingRun
    ) -> models.ImageParts:
        """The layers of a fresh classifier for a data set.

        Args:
            dataset: `OpenSetDataset`; gives image size, classes, statistics.
            recipe: of this method's recipe class.
            run: `training.TrainingRun`.
        """
        run.start()
        has_augmentation = recipe.scale < 1 or recipe.flip or recipe.rotation
        augment = None
        if has_augmentation:
            augment = layers.AffineAugmentation(
                recipe.scale, recipe.flip, recipe.rotation, seed=run.seed
            )
        mean, std = dataset.channel_statistics
        network = self.backbone(dataset, recipe, run)
        return models.image_parts(
            dataset.image_shape,
            mean,
            std,
            network,
            augment,
            dataset.interpolation,
        )

    def training(
        self, classifier: keras.Model, dataset: OpenSetDataset, recipe: Any
    ) -> training.ClassifierTraining:
        """The compiled training of a classifier.

        Args:
            classifier: of `parts`.
            dataset, recipe: as of `parts`.
        """
        examples = self.training_examples(dataset).size
        made = training.ClassifierTraining(classifier)
        made.compile(
            recipe.optimizer(-(-examples // recipe.batch_size)),
            self.loss(recipe),
            [self.accuracy(), *self.watched(recipe)],
        )
        return made

    def accuracy(self) -> keras.metrics.Metric:
        """The metric of the predicted classes."""
        return metrics.KnownAccuracy()

    def training_examples(self, dataset: OpenSetDataset) -> Examples:
        """The `Examples` that the network is trained on.

        Raises:
            ValueError: negatives are needed, and there are none.
        """
        if not self.trains_on_negatives:
            return dataset.train
        if not dataset.negatives.size:
            raise ValueError(
                f"The method {self.name} trains on negatives, but these data "
                "have none: name their classes, negative_classes=[...], or "
                "add x_negatives to an .npz file."
            )
        return dataset.train.joined(dataset.negatives)

    def fit_classifier(
        self,
        classifier: keras.Model,
        dataset: OpenSetDataset,
        recipe: Any,
        run: TrainingRun,
        samples: Callable[[Any], Mapping[str, Any]] | None = None,
        name: str = "classifier",
    ) -> None:
        """Trains a classifier by the schedule of the recipe.

        Args:
            classifier: of `parts`.
            dataset, recipe, run: as of `train`.
            samples, name: as of `TrainingRun.fit`.
        """
        monitor = self.watched(recipe)[0].name
        run.fit(
            self.training(classifier, dataset, recipe),
            self.training_examples(dataset),
            dataset.validation,
            stages=recipe.stages,
            batch_size=recipe.batch_size,
            monitor=f"val_{monitor}" if recipe.keeps_best else None,
            samples=samples,
            name=name,
        )

    def train(
        self, dataset: OpenSetDataset, recipe: Any, run: TrainingRun
    ) -> keras.Model:
        if dataset.kind_of_inputs == "texts":
            vectors = text_vectors.text_vectors(dataset.train.images, run.seed)
            computed = dataset.with_inputs(
                functools.partial(text_vectors.vectors_of, vectors)
            )
            return text_vectors.text_classifier(
                vectors, self.train(computed, recipe, run)
            )
        if dataset.holds_images:
            classifier = self.parts(dataset, recipe, run).classifier()
        else:
            run.start()
            classifier = models.vector_classifier(
                *dataset.channel_statistics,
                self.backbone(dataset, recipe, run),
            )
        self.fit_classifier(classifier, dataset, recipe, run)
        return classifier
