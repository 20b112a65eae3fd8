# SPDX-License-Identifier: Apache-2.0
"""Everything that decides how a model is trained, besides data and seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import ClassVar
from typing import Self

from cac_tf import lazy
from cac_tf import training
from cac_tf.methods import presets
from cac_tf.models import networks
from cac_tf.options import Options
from cac_tf.options import field

keras = lazy.module("keras")


# Larger values are taken for typing errors.
_MOST, _LARGEST_RATE = 10**6, 1000


@dataclasses.dataclass(frozen=True)
class BaseRecipe(Options):
    """Base of recipes: fields with a help text and allowed values, see `field`.

    Raises:
        ValueError: a value that is not allowed.

    Example:

    >>> @dataclasses.dataclass(frozen=True)
    ... class Recipe(BaseRecipe):
    ...     width: int = field(8, "Width of the decoder.", at_least=1)
    >>> Recipe(width=0)
    Traceback (most recent call last):
    ValueError: width must be at least 1; got 0.
    """

    @classmethod
    def published(cls) -> dict[str, Any]:
        """The values in the code behind the published figures.

        Empty if they equal the data set's recipe.
        """
        return {}

    @classmethod
    def of_preset(
        cls, preset: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Self:
        """A preset's recipe with some of its values replaced.

        Args:
            preset: dict of values.
            given: dict of values.
        """
        return cls(**{**preset, **given})

    @property
    def unused(self) -> dict[str, str]:
        """Fields without effect: dict from their names to the reason."""
        return {}

    @property
    def in_force(self) -> dict[str, Any]:
        """The fields that have an effect, as a dict."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in self.unused
        }


@dataclasses.dataclass(frozen=True)
class Recipe(BaseRecipe):
    """How a classifier is trained; a method may add its own fields.

    `Method.recipe_for` makes a recipe with a preset's values; a recipe made
    directly has the defaults of its fields.

    Schedules: "cosine" lets the learning rate fall to 0 over all epochs and
    keeps the last weights. "two_stage" trains `epochs` at `learning_rate`,
    then, from the weights with the best validation value and with fresh
    momentum, `second_stage_epochs` at `second_stage_learning_rate`, and keeps
    the best weights of all, as the paper's authors do. With `until_converged`,
    each of the two stages ends when the validation value has not improved for
    `patience` epochs, and the numbers of epochs are upper limits.
    """

    preset: str = field(
        "fair",
        "Where the other values come from. fair (the default): the data "
        "set's recipe, the same for all methods; for the benchmark, the CAC "
        "paper's. fast: fewer epochs with a cosine schedule, for data sets "
        "of the benchmark. paper: the settings behind the published figures "
        "of g_openmax and osrci, as far as known, without augmentation; for "
        "c2ae, crosr and gfror, whose code is not available, the same with "
        "learning rates from re-implementations; for other methods, fair.",
        choices=presets.NAMES,
    )
    network: str = field(
        "openset_cnn",
        "The network to train: openset_cnn or resnet18 for images, mlp (the "
        "default for vectors) or linear, or one from another package. Or a "
        f"pretrained network: {networks.PRETRAINED}, any Keras model of "
        "images with pixels in 0...255, cut before its last dense layer. It "
        "is frozen and computes the features of each image or text once; "
        "only a head is trained on them: linear for images, mlp for texts.",
        group="network",
    )
    weights: str = field(
        "imagenet",
        "Weights of a keras_applications network: imagenet, a weights file, "
        "or none (random weights).",
        group="network",
    )
    views: int = field(
        1,
        "With a pretrained network for images: number of views of each "
        "training image: the image itself and views - 1 random crops, some "
        "of them mirrored. Each is computed once.",
        group="network",
        at_least=1,
        at_most=100,
    )
    fine_tune: int = field(
        0,
        "With a pretrained network: number of passes over the images that "
        "then fine-tune the whole network at a tenth of the learning rate; "
        "batch normalization stays frozen.",
        group="network",
        at_least=0,
        at_most=_MOST,
    )
    algorithm: str = field(
        "sgd", "Optimizer of the classifier.", choices=("sgd", "adam")
    )
    schedule: str = field(
        "cosine",
        "cosine: the learning rate falls to 0 over all epochs, and the final "
        "weights are kept. two_stage: epochs at learning_rate, then, from "
        "the best weights, second_stage_epochs at "
        "second_stage_learning_rate; the weights that are best on the "
        "validation data are kept.",
        choices=("cosine", "two_stage"),
    )
    epochs: int = field(
        100,
        "Number of passes over the training data; with two_stage, those of "
        "the first stage; with until_converged, an upper limit (1000).",
        at_least=1,
        at_most=_MOST,
    )
    learning_rate: float = field(
        0.01,
        "Initial learning rate.",
        above=0,
        at_most=_LARGEST_RATE,
    )
    second_stage_epochs: int = field(
        0,
        "Epochs of the second stage; 0: no second stage; with "
        "until_converged, an upper limit (1000).",
        at_least=0,
        at_most=_MOST,
    )
    second_stage_learning_rate: float = field(
        0.001,
        "Learning rate of the second stage.",
        above=0,
        at_most=_LARGEST_RATE,
    )
    until_converged: bool = field(
        False,
        "End each stage when the validation value (CAC: the anchor loss) has "
        "not improved for patience epochs.",
    )
    patience: int = field(
        20,
        "Epochs without improvement after which a stage ends.",
        at_least=1,
        at_most=_MOST,
    )
    batch_size: int = field(32, "Batch size.", at_least=1, at_most=_MOST)
    momentum: float = field(
        0.9, "Momentum of SGD, in [0, 1).", at_least=0, below=1
    )
    weight_decay: float = field(
        1e-3,
        "Weight decay: L2 penalty on all weights, as a factor of the gradient.",
        at_least=0,
        at_most=1,
    )
    dropout: float = field(
        0.2,
        "Fraction of channels dropped after each block (mlp: of hidden "
        "units), in [0, 1).",
        group="network",
        at_least=0,
        below=1,
    )
    scale: float = field(
        0.5,
        "Smallest area of a random crop, as a fraction in (0, 1]; 1: no crops.",
        above=0,
        at_most=1,
    )
    flip: float = field(
        0.5, "Probability of a horizontal flip.", at_least=0, at_most=1
    )
    rotation: float = field(
        10.0,
        "Largest random rotation, in degrees.",
        at_least=0,
        at_most=180,
    )

    # Upper limit of a stage that ends when it has converged.
    MOST_EPOCHS_UNTIL_CONVERGED = 1000
    # The first decay rate of Adam.
    BETA_1: ClassVar[float] = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        networks.check(self.network)

    @property
    def is_pretrained(self) -> bool:
        """Whether the network is one that somebody has trained."""
        return networks.is_pretrained(self.network)

    def of_head(self, holds_images: bool) -> Self:
        """The recipe of what is trained on a frozen network.

        Args:
            holds_images: whether this network takes images.
        """
        network = (
            presets.OF_FROZEN_IMAGES if holds_images else presets.OF_VECTORS
        )
        return dataclasses.replace(self, network=network)

    @property
    def of_fine_tuning(self) -> Self:
        """The recipe of the training of a whole pretrained network."""
        return dataclasses.replace(
            self,
            schedule="cosine",
            epochs=self.fine_tune,
            learning_rate=self.learning_rate / 10,
        )

    @classmethod
    def of_preset(
        cls, preset: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Self:
        """As in `BaseRecipe`; `until_converged` has upper limits of its own."""
        limits = {}
        schedule = {"schedule": cls.schedule, **preset, **given}["schedule"]
        if given.get("until_converged") and schedule == "two_stage":
            most = cls.MOST_EPOCHS_UNTIL_CONVERGED
            limits["epochs"] = most
            # Unless the preset says that there is no second stage.
            if preset.get("second_stage_epochs") != 0:
                limits["second_stage_epochs"] = most
        return super().of_preset({**preset, **limits}, given)

    @property
    def unused(self) -> dict[str, str]:
        """Fields without effect: dict from their names to the reason.

        Example:

        >>> Recipe(schedule="two_stage").unused["patience"]
        'until_converged=False'
        """
        unused = self._unused_of_network()
        if self.algorithm == "adam":
            unused["momentum"] = "algorithm=adam"
        if self.schedule == "cosine":
            names = (
                *("second_stage_epochs", "second_stage_learning_rate"),
                *("until_converged", "patience"),
            )
            return {**unused, **dict.fromkeys(names, "schedule=cosine")}
        if not self.second_stage_epochs:
            unused["second_stage_learning_rate"] = "second_stage_epochs=0"
        if not self.until_converged:
            unused["patience"] = "until_converged=False"
        return unused

    def _unused_of_network(self):
        why = f"network={self.network}"
        if not self.is_pretrained:
            names = ("weights", "views", "fine_tune")
            return dict.fromkeys(names, why)
        unused = {}
        if not self.fine_tune and self.views == 1:
            augmenting = dict.fromkeys(
                presets.OF_IMAGES, "a frozen network and views=1"
            )
            unused.update(augmenting)
        if not self.network.startswith(networks.APPLICATIONS):
            unused["weights"] = f"{why}, which has its own"
        return unused

    @property
    def keeps_best(self) -> bool:
        """Whether the best weights by validation are kept, not the last."""
        return self.schedule != "cosine"

    @property
    def most_epochs(self) -> int:
        """The number of epochs if no stage ends early."""
        return sum(stage.epochs for stage in self.stages)

    @property
    def stages(self) -> list[training.Stage]:
        """The schedule as `Stage`s, for `fit_resumable`."""
        if self.schedule == "cosine":
            return [training.Stage(self.epochs)]
        patience = self.patience if self.until_converged else None
        first = training.Stage(self.epochs, self.learning_rate, patience)
        second = training.Stage(
            self.second_stage_epochs, self.second_stage_learning_rate, patience
        )
        return [first, second]

    def optimizer(self, steps_per_epoch: int) -> Any:
        """SGD with momentum, or Adam, at the first epoch's learning rate."""
        rate = self._first_rate(steps_per_epoch)
        if self.algorithm == "adam":
            return self.adam(rate)
        return keras.optimizers.SGD(rate, momentum=self.momentum)

    @classmethod
    def adam(cls, learning_rate: Any) -> Any:
        """Adam with this recipe's decay rates."""
        return keras.optimizers.Adam(learning_rate, beta_1=cls.BETA_1)

    def _first_rate(self, steps_per_epoch):
        """The learning rate of the first stage, or its schedule."""
        if self.schedule == "cosine":
            return keras.optimizers.schedules.CosineDecay(
                self.learning_rate, self.epochs * steps_per_epoch
            )
        return self.learning_rate
