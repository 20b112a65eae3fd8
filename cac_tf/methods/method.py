# SPDX-License-Identifier: Apache-2.0
"""The base class of methods, the rows of the paper's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from cac_tf.methods import presets
from cac_tf.methods.recipe import Recipe
from cac_tf.models import networks
from cac_tf.registry import Registry

if TYPE_CHECKING:
    import keras

    from cac_tf.data.open_set_dataset import OpenSetDataset
    from cac_tf.models.open_set_classifier import OpenSetClassifier
    from cac_tf.training.run import TrainingRun

# What several methods share registers nothing.
_METHODS = Registry(
    "method",
    "cac_tf.methods",
    but=(
        "around_centers",
        "generated_unknowns",
        "image_maps",
        "known_data",
        "method",
        "presets",
        "published_recipe",
        "recipe",
        "reconstruction",
        "supervised",
    ),
)
names, get = _METHODS.names, _METHODS.get


def register(method: Method) -> Method:
    """Registers a method by its name.

    Returns:
        The method.

    Raises:
        ValueError: the name is taken; a field of its recipe has a different
            type from the field of the same name in another method.
    """
    elsewhere = _fields()
    for field in dataclasses.fields(method.recipe):
        kind, owner = elsewhere.get(field.name, (type(field.default), None))
        if {kind, type(field.default)} not in ({kind}, {int, float}):
            raise ValueError(
                f"The field {field.name!r} of the method {method.name!r} has "
                f"type {type(field.default).__name__}, but the field of "
                f"{owner} has type {kind.__name__}. Choose another name."
            )
    return _METHODS.register(method)


def _fields():
    """The type of each field so far, and whose it is, by name."""
    owners = {"the recipe of all methods": Recipe}
    for method in _METHODS.registered():
        owners[f"the method {method.name!r}"] = method.recipe
    found = {}
    for owner, recipe in owners.items():
        for field in dataclasses.fields(recipe):
            found.setdefault(field.name, (type(field.default), owner))
    return found


class Method:
    """A way to train a classifier, and to score its inputs.

    A subclass has a `name`, a `recipe` class and `scores`, and defines `train`,
    with as many networks, losses and stages as it needs. Once an instance is
    registered (`methods.register`), in a file of this folder or in another
    package, it is found by its name.
    """

    name: str | None = None
    recipe = Recipe  # a dataclass that extends `recipe.BaseRecipe`
    # Names of `cac_tf.scores` that an evaluation compares by default; the
    # first is the method's own.
    scores: tuple[str, ...] = ("gamma",)
    # The score where none is named: for vectors and texts, and behind a
    # pretrained network of images; None: the method's own.
    score_of_vectors: str | None = None
    score_of_frozen_images: str | None = None
    # Values of its own fields for scikit-learn's digits.
    digits: Mapping[str, Any] = {}
    # Whether its losses and networks are those of the whole batch where
    # TensorFlow divides it among devices. (On JAX, everything is.)
    takes_several_devices: bool = True
    # Whether its networks take other inputs than images.
    takes_vectors: bool = False

    def preset(
        self, dataset: str, name: str = "fair", vectors: int | None = None
    ) -> dict[str, Any]:
        """The recipe values of a preset for a data set, as a dict.

        By default, those for which the recipe has fields; see `Recipe.preset`.

        Args:
            dataset: name of the data set.
            name: "fair", "fast" or "paper".
            vectors: approximate number of inputs, if they are vectors; None for
                images.

        Raises:
            ValueError: another name, or the data set has no fast recipe; or the
                inputs are vectors, and the method takes only images.
        """
        if name not in presets.NAMES:
            raise ValueError(
                f"preset must be one of {', '.join(presets.NAMES)}; got "
                f"{name!r}."
            )
        if vectors is not None:
            if not self.takes_vectors:
                raise ValueError(
                    f"method={self.name} works only with images, not with "
                    "vectors or with a pretrained network, which turns "
                    "images into vectors; method=cac and "
                    "method=cross_entropy work with both."
                )
            if name != "fair":
                raise ValueError(
                    f"preset={name} is not available for vectors; leave it out."
                )
            return self.fitting(presets.vectors(vectors))
        if name == "paper" and self.recipe.published():
            return self.recipe.published()
        values = presets.preset(dataset)
        if name == "fast":
            values = {**values, **presets.fast(dataset)}
        if dataset == "digits":
            values = {**values, **self.digits}
        return self.fitting(values)

    def recipe_for(
        self,
        dataset: str,
        given: Mapping[str, Any],
        vectors: int | None = None,
    ) -> Any:
        """The recipe for a data set: its preset, with some values replaced.

        Args:
            dataset: name of the data set.
            given: dict of values; the key `preset` chooses the preset.
            vectors: as of `preset`; with a pretrained network, the number of
                images.

        Returns:
            An object of this method's recipe class.

        Raises:
            ValueError: a value that is not allowed, or a preset that the data
                set does not have.

        Example:

        >>> from cac_tf import methods
        >>> cac = methods.get("cac")
        >>> cac.recipe_for("mnist", {}).most_epochs
        70
        >>> cac.recipe_for("mnist", {"preset": "fast"}).most_epochs
        10
        """
        preset = self.preset(dataset, given.get("preset", "fair"), vectors)
        if networks.is_pretrained(given.get("network", "")):
            # Vectors that it makes of images, which fine-tuning may augment.
            of_vectors = {
                k: v for k, v in preset.items() if k not in presets.OF_IMAGES
            }
            preset = of_vectors | self.fitting(presets.augmentation(dataset))
        return self.recipe.of_preset(preset, given)

    def fitting(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The subset of values for which the recipe has fields."""
        fields = {field.name for field in dataclasses.fields(self.recipe)}
        return {k: v for k, v in values.items() if k in fields}

    def train(
        self, dataset: OpenSetDataset, recipe: Any, run: TrainingRun
    ) -> keras.Model:
        """Trains a classifier.

        Called again after an interruption with the same arguments, it resumes
        from the checkpoints of `run` and ends with the same weights. Therefore
        it must draw random numbers only from `run.seed`, and train with
        `run.fit`.

        Args:
            dataset: `OpenSetDataset`.
            recipe: of this method's recipe class.
            run: `training.TrainingRun`: seed and checkpoints.

        Returns:
            Keras model of raw images, with the outputs that the method's
            scores read.
        """
        raise NotImplementedError

    def calibrate(
        self,
        model: OpenSetClassifier,
        dataset: OpenSetDataset,
        recipe: Any,
        true_positive_rate: float,
    ) -> None:
        """Sets a model's threshold from known validation images.

        Args:
            model: `OpenSetClassifier` made from a classifier that `train`
                returned; its score may differ from the method's.
            dataset, recipe: as for `train`.
            true_positive_rate: share of these images to accept.
        """
        model.calibrate(
            dataset.validation.images, true_positive_rate=true_positive_rate
        )

    def check(
        self, recipe: Any, dataset_name: str, tta: str | None, score: str
    ) -> None:
        """Raises ValueError if a recipe does not fit the other settings.

        Args:
            recipe: of this method's recipe class.
            dataset_name: name of the data set.
            tta: the chosen test-time augmentation, or None.
            score: name of the chosen score.
        """
        presets.check_tta(tta, dataset_name, getattr(recipe, "flip", None))
