# SPDX-License-Identifier: Apache-2.0
"""A trained classifier that can answer "unknown"."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Self

import keras
from numpy.typing import ArrayLike

from cac_tf import scores as score_rules
from cac_tf.annotations import Shape
from cac_tf.decision import rule
from cac_tf.decision.p_values import p_values
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.models import keras_classes  # noqa: F401
from cac_tf.models import making
from cac_tf.models import measuring
from cac_tf.models import prediction
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.models.enrolling import Enrolling
from cac_tf.models.keeping import Kept
from cac_tf.scores import Score

_NOT_TRAINED = (
    "An OpenSetClassifier cannot be trained. Train the classifier with plain "
    "Keras, then make a new one: classifier.compile(optimizer, "
    "cac_tf.losses.CACLoss()); classifier.fit(x, y); "
    "OpenSetClassifier.from_classifier(classifier, (x, y))."
)


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetClassifier(Kept, Enrolling):
    """A trained classifier with class centers, one score and a threshold.

    `from_classifier` makes one from any trained Keras classifier and known
    data. Afterwards only the threshold can change (`calibrate`,
    `set_threshold`). For another score, other data or an additional class
    (`enroll`), you make a new model. A model predicts, saves and exports;
    `predict` returns the same dict as a call, and `predict_open_set` adds class
    names and checks.

    A call returns a dict: the outputs of the classifier (`logits`, (B, D),
    usually `features`, and any other named outputs), `distances` to the class
    centers and `gamma`, both (B, N), `unknown_score`, (B,) float32, larger =
    more unknown, `predicted_class_id` and `class_id`, (B,) int32, the latter -1
    if the input is rejected, and `p_value`, (B,) float32 in (0, 1], small =
    unusual compared with the known inputs given to `calibrate`.

    Every method that takes data accepts an array of raw inputs, (n, ...), or a
    data set of batches, either inputs or (inputs, labels). `y` holds the labels
    of an array, (n,) class indices. `batch_size` applies to arrays; None
    chooses a size by their shape.

    Args:
        classifier: built Keras model that ends in logits, or a dict with
            `logits`. It is used without copying, and frozen unless `is_shared`.
        class_names: N >= 2 distinct strings.
        score: a name in `scores.names()`, or a `scores.Score`.
        centers: (N, D) class centers; or a number, the length of the anchors.
        statistics: the score's statistics, arrays by name, if it learns from
            data.
        threshold: a number or one per class; None: not calibrated yet.
        features_layer: name of the classifier's layer whose output is the
            features. None: the input of its last dense layer.
        tta: test-time augmentation. None, or "flip": logits and features are
            means over an image and its mirror image, at twice the cost. Do not
            use it for images whose class changes when they are mirrored, such
            as digits and letters.
        input_shape: shape of one raw input, if the classifier has no `Input`.
        is_shared: whether the classifier may be trained further elsewhere. It
            is then not frozen, and a change of its weights is detected.
        journal: the changes made after training, see the property `journal`.
        **kwargs: `name` of the model.

    Raises:
        ValueError: fewer than two classes, duplicate or reserved names, a score
            that does not exist or reads a missing output (the message lists the
            available ones), statistics of another score, centers of the wrong
            shape or not finite, an invalid tta.

    Example:

    >>> import keras, numpy as np, cac_tf
    >>> keras.utils.set_random_seed(0)
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> x = np.float32(3 * np.eye(2, 4)[y] + rng.normal(size=(200, 4)))
    >>> classifier = keras.Sequential([
    ...     keras.Input([4]), keras.layers.Dense(2)])
    >>> classifier.compile("adam", cac_tf.losses.CACLoss())
    >>> history = classifier.fit(x, y, epochs=2, verbose=0)
    >>> model = cac_tf.OpenSetClassifier.from_classifier(
    ...     classifier, (x, y), class_names=["left", "right"],
    ...     score="min_distance")
    >>> threshold = model.calibrate(x, true_positive_rate=0.95)
    >>> [str(one) for one in model.predict_open_set(100 * x[:1]).label]
    ['unknown']
    """

    def __init__(
        self,
        classifier: keras.Model,
        class_names: Sequence[str],
        score: str | Score = "gamma",
        *,
        centers: float | ArrayLike = MAGNITUDE,
        statistics: Mapping[str, ArrayLike] | None = None,
        threshold: ArrayLike | None = None,
        features_layer: str | None = None,
        tta: str | None = None,
        input_shape: Shape | None = None,
        is_shared: bool = False,
        journal: Sequence[Mapping[str, Any]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(
            classifier,
            class_names,
            score,
            centers=centers,
            statistics=statistics,
            features_layer=features_layer,
            tta=tta,
            input_shape=input_shape,
            is_shared=is_shared,
            journal=journal,
            **kwargs,
        )
        # (So TensorFlow knows what a SavedModel of its own takes.)
        self.build((None, *self.inputs_taken.shape))
        if threshold is not None:
            self.set_threshold(threshold)

    def build(self, input_shape: Shape) -> None:
        """Everything is made in the constructor."""
        self.built = True

    # ---- prediction -------------------------------------------------------

    def predict_open_set(
        self, x: Any, batch_size: int | None = None
    ) -> prediction.OpenSetPrediction:
        """Classifies inputs, or rejects them as "unknown" (equation 9).

        Args:
            x, batch_size: see the class.

        Returns:
            `OpenSetPrediction`, arrays in the order of the inputs.

        Raises:
            ValueError: no threshold; see also `predict_scores`.
        """
        self.require_threshold()
        return self.decide(self.predict_scores(x, batch_size))

    def decide(
        self,
        scores: prediction.OpenSetScores,
        threshold: ArrayLike | None = None,
    ) -> prediction.OpenSetPrediction:
        """Makes decisions from scores that were computed already.

        Args:
            scores: what `predict_scores` returned.
            threshold: a number or one per class; None: the model's.

        Raises:
            ValueError: there is no threshold, or it is not a finite number or
                one per class.
        """
        if threshold is None:
            threshold = self.require_threshold()
        threshold = rule.check_threshold(threshold, len(self.class_names))
        p_value = p_values(scores.unknown_score, *self.calibration)
        return prediction.decisions_of(
            scores, threshold, self.class_names, p_value
        )

    def evaluate(
        self, x: Any, y: Any = None, batch_size: int | None = None
    ) -> dict[str, float]:
        """Measures how well labeled inputs are classified and rejected.

        Args:
            x, y, batch_size: see the class; labels are -1 for unknown inputs.

        Returns:
            Dict: `accuracy` on the known inputs before rejection; with unknown
                inputs, `auroc`; with a threshold, `true_positive_rate` and
                `false_positive_rate`, the shares of known and of unknown inputs
                that are accepted, and `macro_f1` over the classes and
                "unknown".

        Raises:
            ValueError: no labels, or invalid ones; see also `predict_scores`.
        """
        return measuring.measures_of(self, x, y, batch_size)

    # ---- other models -----------------------------------------------------

    @classmethod
    def from_classifier(
        cls,
        classifier: keras.Model,
        data: Any,
        y: Any = None,
        *,
        class_names: Sequence[str] | None = None,
        score: str | Score | None = None,
        validation_data: Any = None,
        score_data: Any = None,
        centers: str | ArrayLike | None = None,
        magnitude: float = MAGNITUDE,
        features_layer: str | None = None,
        tta: str | None = None,
        copy: bool = True,
        batch_size: int | None = None,
    ) -> Self:
        """Makes a trained Keras classifier able to reject unknown inputs.

        Nothing is trained: one pass over known data computes the class means
        (over the examples that the classifier gets right, section 3.1.2 of the
        paper) and the statistics of the score. A softmax at the classifier's
        end, or the sigmoid of a two-class model, is removed. The classifier is
        copied, so training it further does not change the new model.

        Args:
            classifier: trained Keras model that ends in N logits, or in a
                softmax or log-softmax over them; for two classes also in one
                logit of the second class, or its sigmoid. Or a dict with such
                `logits`.
            data, y, batch_size: known training data, see the class; `data` may
                also be a pair (inputs, labels).
            class_names: N distinct strings, in the order of the outputs; None:
                "0", "1", ...
            score: a name in `scores.names()`, or a `scores.Score`. None: a
                score that rejects whatever is far from all known inputs: "vim",
                or "min_distance" if no features are found.
            validation_data: known data that was not trained on, like `data`. If
                given, the threshold is set to accept 95 % of it, and a score
                that prefers such data is fitted to it.
            score_data: data to fit the score to, instead of `data`.
            centers: None: class means; "anchors"; or (N, D) centers.
            magnitude: length of the anchors; a class without a correctly
                classified example keeps its anchor.
            features_layer, tta: as for the class.
            copy: False: the classifier is shared, and once its weights change,
                using the model is an error. A classifier without a config,
                which cannot be copied, is always shared.

        Returns:
            `OpenSetClassifier`, with a threshold if `validation_data` is given.

        Raises:
            ValueError: as for the class; no data or labels, or invalid ones;
                too few examples for the score; a classifier with several
                unnamed outputs, or one that ends in something else, such as
                several sigmoids (multi-label).
        """
        return making.from_classifier(
            cls,
            classifier,
            (data, y),
            class_names=class_names,
            score=score,
            validation_data=validation_data,
            score_data=score_data,
            centers=centers,
            magnitude=magnitude,
            features_layer=features_layer,
            tta=tta,
            copy=copy,
            batch_size=batch_size,
        )

    @classmethod
    def from_outputs(
        cls,
        classifier: keras.Model,
        outputs: Mapping[str, ArrayLike],
        y: ArrayLike,
        *,
        validation_outputs: tuple[Mapping[str, ArrayLike], Any] | None = None,
        **options: Any,
    ) -> Self:
        """Like `from_classifier`, but from outputs that were computed already.

        Args:
            classifier: as of `from_classifier`, with an `Input`.
            outputs: the classifier's outputs for known training data: dict of
                (n, ...) float arrays with `logits`, (n, D), before any softmax,
                and what the score reads, such as `features`.
            y: (n,) class indices.
            validation_outputs: pair of such outputs for known data that was not
                trained on, and their labels or None; used for the threshold.
            **options: `class_names`, `score`, `centers`, `magnitude`,
                `features_layer`, `tta` and `copy` of `from_classifier`.

        Returns:
            `OpenSetClassifier`. Scores that keep a sample of the examples may
            keep a different sample than with `from_classifier`.

        Raises:
            ValueError: see `from_classifier`; outputs that are missing, of a
                different width than the classifier's, or not finite.
        """
        held_back = None
        if validation_outputs is not None:
            known, labels = validation_outputs
            held_back = (ComputedOutputs(known), labels)
        return cls.from_classifier(
            classifier,
            ComputedOutputs(outputs),
            y,
            validation_data=held_back,
            **options,
        )

    def with_score(
        self,
        score: str | Score,
        data: Any = None,
        y: Any = None,
        *,
        statistics: Mapping[str, ArrayLike] | None = None,
        tta: str | None = "same",
        batch_size: int | None = None,
    ) -> Self:
        """The same classifier and centers with another score, no threshold.

        Args:
            score: a name in `scores.names()`, or a `scores.Score`.
            data, y, batch_size: known data, as for `from_classifier`, for a
                score that learns from data.
            statistics: the score's statistics, instead of data.
            tta: as for the class; "same": as in this model.

        Returns:
            A new model, which shares the classifier with this one.

        Raises:
            ValueError: a score that learns from data without any, or that
                cannot be used with this classifier.
        """
        self.require_same_classifier()
        score = score_rules.get(score)
        self.require_outputs_for(score)
        if score.IS_FITTED_TO_DATA and statistics is None and data is not None:
            found, problems = self.fit_scores([score], data, y, batch_size)
            if problems:
                raise problems[score.name]
            statistics = found[score.name]
        return type(self)(
            self.classifier,
            self.class_names,
            score,
            centers=self.magnitude if self.has_anchors else self.centers,
            statistics=statistics,
            features_layer=self.network.features_layer,
            tta=self.tta if tta == "same" else tta,
            input_shape=self.inputs_taken.shape,
            is_shared=self.is_shared,
            journal=self.journal,
        )

    def with_backbone(self, backbone: keras.Model) -> Self:
        """The same model, for the raw inputs of a network in front of it.

        Args:
            backbone: Keras model whose outputs are the inputs of this model's
                classifier, (B, ...) -> (B, E).

        Returns:
            A new model with the same answers and p-values, which shares the
            classifier with this one.
        """
        self.require_same_classifier()
        made = type(self)(
            making.on_backbone(backbone, self.classifier),
            self.class_names,
            self.score,
            centers=self.magnitude if self.has_anchors else self.centers,
            statistics=self.statistics,
            features_layer=self.network.features_layer,
            tta=self.tta,
            threshold=self.threshold,
            is_shared=self.is_shared,
            journal=self.journal,
        )
        made.calibration = self.calibration
        made._own.accepted_unknown = self._own.accepted_unknown
        return made

    # ---- not this way -----------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: compile the classifier, with plain Keras."""
        raise RuntimeError(_NOT_TRAINED)

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: train the classifier, with plain Keras."""
        raise RuntimeError(_NOT_TRAINED)

    train_on_batch = fit


__all__ = ["OpenSetClassifier"]
