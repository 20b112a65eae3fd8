# SPDX-License-Identifier: Apache-2.0
"""Everything that decides how a model is trained, besides data and seed."""

import dataclasses

import keras

from cac_tf.layers import AffineAugmentation
from cac_tf.models import NETWORKS
from cac_tf.training import Stage

SCHEDULES = ("cosine", "two_stage")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What all methods share; a method adds fields of its own.

    Schedules: "cosine" lets the learning rate fall to 0 over all epochs and
    keeps the last weights. "two_stage" trains `epochs` at `learning_rate`,
    then, from the weights with the best validation value and with fresh
    momentum, `second_stage_epochs` at `second_stage_learning_rate`, and keeps
    the best weights of all, as the paper's authors do. With
    `until_converged` each of the two stages ends when the validation value
    has not improved for `patience` epochs, and the numbers of epochs are
    upper limits.
    """

    network: str = "openset_cnn"
    schedule: str = "cosine"
    epochs: int = 100
    learning_rate: float = 0.01
    second_stage_epochs: int = 0
    second_stage_learning_rate: float = 0.001
    until_converged: bool = False
    patience: int = 20
    batch_size: int = 32
    momentum: float = 0.9
    weight_decay: float = 1e-3
    dropout: float = 0.2
    scale: float = 0.5
    flip: float = 0.5
    rotation: float = 10.0

    def __post_init__(self):
        # Checks its own arguments.
        AffineAugmentation(self.scale, self.flip, self.rotation)
        for name, allowed in (
            ("network", tuple(NETWORKS)),
            ("schedule", SCHEDULES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}; got "
                    f"{getattr(self, name)!r}."
                )
        for name, lowest in (
            ("epochs", 1),
            ("batch_size", 1),
            ("patience", 1),
            ("second_stage_epochs", 0),
        ):
            if getattr(self, name) < lowest:
                raise ValueError(
                    f"{name} must be at least {lowest}; got "
                    f"{getattr(self, name)}."
                )
        for name in ("learning_rate", "second_stage_learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name} must be > 0; got {getattr(self, name)}."
                )
        if not self.weight_decay >= 0:
            raise ValueError(
                f"weight_decay must be >= 0; got {self.weight_decay}."
            )
        for name in ("momentum", "dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"{name} must be in [0, 1); got {getattr(self, name)}."
                )

    @property
    def unused(self):
        """Names of the fields that have no effect, given the others.

        Example:

        >>> sorted(Recipe(schedule="two_stage").unused)
        ['patience', 'second_stage_learning_rate']
        """
        if self.schedule == "cosine":
            return {
                "second_stage_epochs",
                "second_stage_learning_rate",
                "until_converged",
                "patience",
            }
        unused = set()
        if not self.second_stage_epochs:
            unused.add("second_stage_learning_rate")
        if not self.until_converged:
            unused.add("patience")
        return unused

    @property
    def in_force(self):
        """The fields that have an effect, as a dict."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in self.unused
        }

    @property
    def most_epochs(self):
        """The number of epochs if no stage ends early."""
        if self.schedule == "cosine":
            return self.epochs
        return self.epochs + self.second_stage_epochs

    @property
    def stages(self):
        """The schedule as `Stage`s, for `fit_resumable`."""
        if self.schedule == "cosine":
            return [Stage(self.epochs)]
        patience = self.patience if self.until_converged else None
        first = Stage(self.epochs, self.learning_rate, patience)
        second = Stage(
            self.second_stage_epochs, self.second_stage_learning_rate, patience
        )
        return [first, second]

    def optimizer(self, steps_per_epoch):
        """SGD with momentum, at the learning rate of the first epoch."""
        rate = self.learning_rate
        if self.schedule == "cosine":
            rate = keras.optimizers.schedules.CosineDecay(
                rate, self.epochs * steps_per_epoch
            )
        return keras.optimizers.SGD(rate, momentum=self.momentum)
