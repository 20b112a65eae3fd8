# SPDX-License-Identifier: Apache-2.0
"""A training whose network somebody has trained before.

While it is frozen, a data set of images or texts is one of vectors: what the
network makes of each, computed once. Its last part is trained and measured on
these, and then put behind the network, so that the model takes raw inputs.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np

from cac_tf import layers
from cac_tf.data.open_set_dataset import Examples
from cac_tf.experiments.evaluation import seconds_of_network
from cac_tf.layers.affine_augmentation import AffineView
from cac_tf.models.image_classifier import of_raw_images
from cac_tf.models.inputs import takes_texts
from cac_tf.models.making import on_backbone
from cac_tf.models.pretrained import image_size_of
from cac_tf.models.pretrained import pretrained_backbone
from cac_tf.models.pretrained import thaw
from cac_tf.training.computed_features import computed_features
from cac_tf.training.computed_features import dataset_of_features
from cac_tf.training.computed_features import identity

if TYPE_CHECKING:
    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.experiments.config import ExperimentConfig
    from cac_tf.experiments.evaluation import Evaluation
    from cac_tf.models.open_set_classifier import OpenSetClassifier

# Beside the folder of a run; other runs use them, too.
_KEPT = ".cac_tf"
_NOTE = (
    "{network} was pretrained, perhaps on classes similar to the unknown "
    "ones here: the results may be better than for a network that has never "
    "seen them"
)


class PretrainedNetwork:
    """The network of a configuration, and what a training asks of it.

    Args:
        config: `ExperimentConfig` with a pretrained network.

    Raises:
        ValueError, OSError: see `pretrained_backbone`.
    """

    def __init__(self, config: ExperimentConfig) -> None:
        self._recipe = config.recipe_in_force
        self.name = os.path.basename(self._recipe.network)
        is_used = "weights" not in self._recipe.unused
        size = config.data.image_size
        if size is None and config.takes_images:
            size = image_size_of(self._recipe.network)
        self._backbone = pretrained_backbone(
            self._recipe.network,
            weights=self._recipe.weights if is_used else None,
            image_size=size,
        )
        # What it makes of further views of an image, (views - 1, E), by `_key`.
        self._views: dict[bytes, np.ndarray] = {}

    @property
    def sha256(self) -> str:
        """Of its layers and weights; a run goes on only with the same."""
        return identity(self._backbone)

    def check(self, dataset: OpenSetDataset) -> None:
        """Raises ValueError unless it takes the inputs of a data set."""
        kind = "texts" if takes_texts(self._backbone) else "images"
        if kind != dataset.kind_of_inputs:
            raise ValueError(
                f"network={self._recipe.network} expects {kind}, but "
                f"{dataset.name} contains {dataset.kind_of_inputs}."
            )
        if not dataset.holds_images:
            if self._recipe.views > 1:
                raise ValueError(
                    f"views={self._recipe.views} has no effect with texts; "
                    "leave it out."
                )
            return
        *_, channels = dataset.image_shape
        taken = self._backbone.input_shape[-1]
        if taken not in (None, channels):
            raise ValueError(
                f"network={self._recipe.network} expects images with {taken} "
                f"channels; those of {dataset.name} have {channels}."
            )

    def noted(self, dataset: OpenSetDataset) -> OpenSetDataset:
        """A data set, with a note that the network has seen others."""
        note = _NOTE.format(network=self.name)
        return dataclasses.replace(dataset, notes=(*dataset.notes, note))

    def of_raw(
        self,
        dataset: OpenSetDataset,
        augment: keras.layers.Layer | None = None,
    ) -> keras.Model:
        """The network, of images of any size, or of texts."""
        if not dataset.holds_images:
            return self._backbone
        return of_raw_images(
            self._backbone, dataset.image_shape, augment, dataset.interpolation
        )

    def features(
        self,
        dataset: OpenSetDataset,
        run_folder: str,
        tell: Callable[..., None],
    ) -> OpenSetDataset:
        """What it makes of a data set: one of vectors.

        What it makes of further views is kept for `with_views`.

        Args:
            dataset: `OpenSetDataset`.
            run_folder: beside it, features are kept.
            tell: as of `train`.
        """
        computed = []
        beside = os.path.dirname(os.path.abspath(run_folder))

        def progress(count, done, total):
            computed.append(count)
            tell("computed", done, total)

        kept = os.path.join(beside, _KEPT)
        started = time.perf_counter()
        found = dataset_of_features(
            self.of_raw(dataset), dataset, kept, progress=progress
        )
        train = dataset.train
        views = []
        for seed in range(1, self._recipe.views):
            view = self.of_raw(dataset, self._augmentation(AffineView, seed))
            views.append(
                computed_features(view, train.images, kept, progress=progress)
            )
        if views:
            self._views = {
                _key(plain): others.astype("float32")
                for plain, others in zip(
                    found.train.images, np.stack(views, axis=1), strict=True
                )
            }
        seconds = time.perf_counter() - started
        count = sum(dataset.counts.values()) + len(views) * train.size
        new = sum(computed)
        rate = f", {new / seconds:.0f} a second" if new else ""
        tell(
            "note",
            f"{self.name} is frozen: it computed features for {new:,} of "
            f"{count:,} {'views' if views else dataset.kind_of_inputs}{rate}; "
            f"they are kept in {kept}",
        )
        return found

    def with_views(self, dataset: OpenSetDataset) -> OpenSetDataset:
        """A data set whose training examples have all views of each image.

        Args:
            dataset: of `features`, or with some of its training examples.
        """
        if not self._views:
            return dataset
        train = dataset.train
        others = np.stack([self._views[_key(one)] for one in train.images])
        more = Examples(
            others.reshape(-1, others.shape[-1]),
            np.repeat(train.labels, others.shape[1]),
        )
        return dataclasses.replace(dataset, train=train.joined(more))

    def _augmentation(self, kind, seed):
        recipe = self._recipe
        return kind(recipe.scale, recipe.flip, recipe.rotation, seed=seed)

    def thawed(
        self, head: keras.Model, dataset: OpenSetDataset, seed: int
    ) -> keras.Model:
        """The whole classifier, to be trained on raw inputs.

        Args:
            head: classifier of what the network makes of them.
            dataset: `OpenSetDataset`.
            seed: of augmentation.
        """
        thaw(self._backbone)
        head.trainable = True
        augment = self._augmentation(layers.AffineAugmentation, seed)
        return on_backbone(self.of_raw(dataset, augment), head)


def _key(features):
    """What finds the other views of an image."""
    return features.tobytes()


def as_of_raw(
    evaluation: Evaluation, model: OpenSetClassifier, dataset: OpenSetDataset
) -> Evaluation:
    """An evaluation on features, as one of the inputs that they are of.

    Args:
        evaluation: of the part behind the network, on its features.
        model: the whole one.
        dataset: `OpenSetDataset` of the raw inputs.
    """
    inputs = np.asarray(dataset.known_test.images[:_TIMED])
    seconds = seconds_of_network(model, inputs)
    of_parts = evaluation.metrics["microseconds_per_image"]
    metrics = {
        **evaluation.metrics,
        "inputs": dataset.kind_of_inputs,
        "microseconds_per_image": {
            **of_parts,
            "network": round(1e6 * seconds, 3),
        },
    }
    return dataclasses.replace(evaluation, metrics=metrics)


# Inputs whose computation is timed, a usual batch.
_TIMED = 32
