# SPDX-License-Identifier: Apache-2.0
"""What a visitor of the page did: inputs, and classes made of the rejected."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Hashable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Self

import numpy as np

from cac_tf import open_world
from cac_tf.decision import rule

if TYPE_CHECKING:
    from cac_tf.demo.inspection import Inspection
    from cac_tf.demo.inspection import Inspector

# Inputs of a visitor; the oldest ones go.
MOST_KEPT = 300
# Of new inputs of an enrolled class, where each class has its own threshold.
_TRUE_POSITIVE_RATE = 0.95


class RejectedGroup(typing.NamedTuple):
    """Rejected inputs that are alike."""

    inputs: tuple[Inspection, ...]  # the most typical first
    nearest_class: str
    nearest_share: float | None  # of the inputs that this class was nearest to


@dataclasses.dataclass(frozen=True)
class Session:
    """What one visitor of the page did. Each deed makes another session.

    What is rejected, and by which class an input is called, always follows
    from the newest version: that of the model which the page began with, or
    one with more classes.

    Attributes:
        versions: an `Inspector` for each version of the model, the newest
            last.
        threshold: float32, a number or one for each class: where the slider
            stands. Classes are enrolled by the model's own.
        kept: `Inspection` by what tells inputs apart, the newest last, at most
            300.
        shown: which of them the page shows; None: none.
        groups: tuple of `RejectedGroup`, as of the last `grouped`.
        ungrouped: tuple of `Inspection`, rejected then and in no group.
    """

    versions: tuple[Inspector, ...]
    threshold: np.ndarray
    kept: Mapping[Hashable, Inspection] = dataclasses.field(
        default_factory=dict
    )
    shown: Hashable = None
    groups: tuple[RejectedGroup, ...] = ()
    ungrouped: tuple[Inspection, ...] = ()

    @classmethod
    def of(cls, inspector: Inspector) -> Self:
        """The session that a page begins with."""
        return cls((inspector,), _threshold_of(inspector))

    def __deepcopy__(self, memo: object) -> Self:
        # Gradio gives each visitor a copy of the first one, with the model.
        return self

    @property
    def inspector(self) -> Inspector:
        """With the newest version of the model."""
        return self.versions[-1]

    @property
    def seen(self) -> Inspection | None:
        """What the page shows."""
        return self.kept.get(self.shown)

    def with_inputs(self, images: Mapping[Hashable, np.ndarray]) -> Session:
        """Also with other inputs, the last of which is shown.

        Args:
            images: (H, W, C) uint8 arrays. One takes the place of an earlier
                one with the same key.

        Raises:
            ValueError: no images, more than 300, or one of another shape
                than the model takes.
        """
        if not images:
            raise ValueError("There is no image.")
        if len(images) > MOST_KEPT:
            raise ValueError(
                f"{len(images)} images at once are too many; the limit is "
                f"{MOST_KEPT}."
            )
        kept = dict(self.kept)
        for key, image in images.items():
            kept.pop(key, None)
            kept[key] = self.inspector.inspect(image)
        newest = dict(list(kept.items())[-MOST_KEPT:])
        return dataclasses.replace(self, kept=newest, shown=key)

    def rejected(self) -> dict[Hashable, Inspection]:
        """Of `kept`, what the model rejects, wherever the slider stands."""
        inputs = self.kept.values()
        scores = np.array([one.unknown_score for one in inputs], "float32")
        predicted = np.array([one.predicted_class_id for one in inputs], int)
        of_rows = rule.threshold_of_rows(
            _threshold_of(self.inspector), predicted
        )
        is_accepted = rule.accepts(scores, of_rows)
        return {
            key: one
            for (key, one), accepted in zip(
                self.kept.items(), is_accepted, strict=True
            )
            if not accepted
        }

    def grouped(self) -> Session:
        """With the groups of what is rejected now."""
        rejected = list(self.rejected().values())
        if not rejected:
            return dataclasses.replace(self, groups=(), ungrouped=())
        names = self.inspector.model.class_names
        found = open_world.group(
            np.stack([one.vector for one in rejected]),
            predicted_class=[names[one.predicted_class_id] for one in rejected],
            center=self.inspector.center,
        )
        groups = [
            RejectedGroup(
                tuple(rejected[row] for row in one.members),
                one.nearest_class,
                one.nearest_share,
            )
            for one in found.groups
        ]
        ungrouped = [rejected[row] for row in np.flatnonzero(found.group < 0)]
        return dataclasses.replace(
            self, groups=tuple(groups), ungrouped=tuple(ungrouped)
        )

    def enrolled(self, name: str, number: int) -> Session:
        """With one more version of the model, in which a group is a class.

        Args:
            name: of the class.
            number: position of the group in `groups`.

        Raises:
            ValueError: there is no such group; see also `model.enroll`.
        """
        if number not in range(len(self.groups)):
            raise ValueError("Choose a group first.")
        model = self.inspector.model
        rate = None
        if not isinstance(model.threshold, float):
            rate = _TRUE_POSITIVE_RATE
        # (Images of a network for all sizes may have several.)
        batches = [(one.image[None],) for one in self.groups[number].inputs]
        larger = model.enroll({name.strip(): batches}, true_positive_rate=rate)
        made = self.inspector.with_model(larger)
        return self._with_versions((*self.versions, made))

    def undone(self) -> Session:
        """With the version before the newest one.

        Raises:
            ValueError: this is what the page began with.
        """
        if len(self.versions) == 1:
            raise ValueError(
                "This is the original version of the model: there is nothing "
                "to undo."
            )
        return self._with_versions(self.versions[:-1])

    def _with_versions(self, versions):
        inspector = versions[-1]
        inputs = inspector.again(list(self.kept.values()))
        return Session(
            versions,
            _threshold_of(inspector),
            dict(zip(self.kept, inputs, strict=True)),
            self.shown,
        ).grouped()


def _threshold_of(inspector):
    return np.asarray(inspector.model.require_threshold(), "float32")
