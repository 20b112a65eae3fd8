# SPDX-License-Identifier: Apache-2.0
"""What known and unknown inputs that were not trained on set: the threshold,
and the scores that p-values are of."""

from typing import Any

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf.annotations import Tensor
from cac_tf.decision import calibration
from cac_tf.decision import rule
from cac_tf.decision.accepted_share import AcceptedShare
from cac_tf.decision.p_values import PValueTable
from cac_tf.decision.p_values import p_value_table
from cac_tf.decision.p_values import p_values
from cac_tf.layers.open_set_decision import OpenSetDecision
from cac_tf.models import measuring
from cac_tf.models.scored_classifier import ScoredClassifier


class CalibratedClassifier(ScoredClassifier):
    """Base of `OpenSetClassifier`: from unknown scores to decisions.

    Only what is here changes after a model was made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.decision = OpenSetDecision(
            name="decision", lowest=0.0 if self.score.IS_NON_NEGATIVE else None
        )
        self.decision.build((None, len(self.class_names)))
        self._own.accepted_unknown = None
        none = p_value_table(())
        self.calibration_scores = self._weight(
            "calibration_scores", none.scores
        )
        self.calibration_levels = self._weight(
            "calibration_levels", none.levels
        )

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = self.with_decision(self.network(inputs))
        class_id = rule.decide(
            outputs["unknown_score"],
            outputs["predicted_class_id"],
            rule.threshold_of_rows(
                self.decision.thresholds, outputs["predicted_class_id"]
            ),
        )
        table = (self.calibration_scores, self.calibration_levels)
        p_value = p_values(
            outputs["unknown_score"], *map(ops.convert_to_tensor, table)
        )
        return {**outputs, "class_id": class_id, "p_value": p_value}

    @property
    def calibration(self) -> PValueTable:
        """What p-values are read from, as arrays."""
        return PValueTable(
            np.array(ops.convert_to_numpy(self.calibration_scores)),
            np.array(ops.convert_to_numpy(self.calibration_levels)),
        )

    @calibration.setter
    def calibration(self, table: PValueTable) -> None:
        self.calibration_scores.assign(table.scores)
        self.calibration_levels.assign(table.levels)

    def calibrate(
        self,
        known: Any = None,
        y: Any = None,
        *,
        true_positive_rate: float | None = None,
        unknown: Any = None,
        false_positive_rate: float | None = None,
        maximize: str | None = None,
        unknown_share: float | None = None,
        by_class: bool = False,
        batch_size: int | None = None,
    ) -> float | np.ndarray:
        """Sets the threshold from data that was not used for training.

        The scores of the known inputs, if there are any, define the p-values.

        Args:
            known: known inputs, which `true_positive_rate` and `maximize` need.
                Rows labeled -1 are unknown inputs; only `maximize` needs
                labels.
            y, batch_size: see the class.
            true_positive_rate: wanted share of known inputs that are
                accepted.
            unknown: unknown inputs, whatever their labels, which
                `false_positive_rate` and `maximize` need. For all three,
                `accepted_shares` says how many are accepted.
            false_positive_rate: largest share of unknown inputs to accept.
            maximize: "macro_f1" or "balanced_accuracy" of known and unknown
                inputs, see `decision.calibration.threshold_maximizing`. No
                rate is guaranteed.
            unknown_share: for `maximize`: the expected share of unknown inputs,
                in (0, 1). None: as among the examples.
            by_class: whether each predicted class gets its own threshold, from
                the examples that are predicted as this class.

        Returns:
            The threshold, a number or (N,) numbers. An input is accepted if
            its unknown score is <= the threshold.

        Raises:
            ValueError: not exactly one of the two rates and `maximize`, a rate
                or share outside (0, 1), no example of the required kind, or
                invalid labels.
        """
        threshold, scores, of_unknown = measuring.threshold_from(
            self,
            known,
            y,
            unknown,
            true_positive_rate=true_positive_rate,
            false_positive_rate=false_positive_rate,
            maximize=maximize,
            unknown_share=unknown_share,
            by_class=by_class,
            batch_size=batch_size,
        )
        self.set_threshold(threshold)
        self._own.accepted_unknown = of_unknown
        if scores is not None:
            self.calibration = p_value_table(scores)
        return threshold

    def calibrate_by_scores(
        self, known_scores: ArrayLike, true_positive_rate: float
    ) -> float:
        """Sets the threshold and p-values from scores computed already.

        Args:
            known_scores: (n,) unknown scores of known inputs that were not used
                for training, for example from cross-validation: by models like
                this one, trained without these inputs.
            true_positive_rate: see `calibrate`.

        Returns:
            The threshold.

        Raises:
            ValueError: no scores, scores that are not finite, or a rate
                outside (0, 1).
        """
        threshold = calibration.threshold_for_true_positive_rate(
            known_scores, true_positive_rate, self.score.RESOLUTION
        )
        self.set_threshold(threshold)
        self.calibration = p_value_table(known_scores)
        return threshold

    @property
    def threshold(self) -> float | np.ndarray | None:
        """A number, (N,) numbers by class, or None while there is none.

        Assigning to it calls `set_threshold`.
        """
        return self.decision.threshold

    @threshold.setter
    def threshold(self, value: ArrayLike | None) -> None:
        self.set_threshold(value)

    def set_threshold(self, threshold: ArrayLike | None) -> None:
        """Sets the threshold by hand.

        Args:
            threshold: a finite number, or one per class; None removes the
                threshold.

        Raises:
            ValueError: something else, or a number below every possible
                score.
        """
        self.decision.threshold = threshold
        self._own.accepted_unknown = None

    @property
    def accepted_shares(self) -> dict[str, AcceptedShare]:
        """The shares of its calibration inputs that the threshold accepts.

        "known", present if the threshold is one number, is the share of the
        known inputs that define the p-values, also after loading. "unknown" is
        the share of the unknown inputs given to `calibrate` since the model was
        made or loaded. `share.interval` is the interval for new inputs like
        them, if the threshold was set by a rate; a threshold that maximizes a
        measure was chosen on these inputs, so the share of new ones is slightly
        worse.

        Example:

        >>> model.accepted_shares["known"].interval  # doctest: +SKIP
        (0.915, 0.978)
        """
        threshold, of_known = self.threshold, None
        if isinstance(threshold, float):
            of_known = self.calibration.accepted_by(threshold)
        both = {"known": of_known, "unknown": self._own.accepted_unknown}
        return {name: one for name, one in both.items() if one is not None}

    def require_threshold(self) -> float | np.ndarray:
        """The threshold; raises ValueError while the model has none."""
        threshold = self.threshold
        if threshold is None:
            raise ValueError(
                "The model has no threshold, so it cannot decide between "
                "known and unknown: call calibrate() first. (predict_scores "
                "works without one.)"
            )
        return threshold
