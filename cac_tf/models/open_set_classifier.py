# SPDX-License-Identifier: Apache-2.0
"""A trained classifier that can answer "unknown"."""

import math
import os
import types
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Self

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import atomic_files
from cac_tf import scores as score_rules
from cac_tf.annotations import Config
from cac_tf.annotations import Outputs
from cac_tf.annotations import Path
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.decision import calibration
from cac_tf.decision import rule
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.layers import anchored_distance
from cac_tf.layers.open_set_decision import OpenSetDecision
from cac_tf.layers.precision import full_precision
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.models import keras_classes  # noqa: F401
from cac_tf.models import making
from cac_tf.models import prediction
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.copying import fingerprint
from cac_tf.models.inputs import InputKind
from cac_tf.models.network import Network
from cac_tf.scores import Score

# Raised when saved models become other ones.
_FORMAT = 5
# What a call adds to the outputs of the network.
_OF_CENTERS = ("distances", "gamma")
_NOT_TRAINED = (
    "An OpenSetClassifier is not trained. Train the classifier by plain Keras, "
    "then make a new one: classifier.compile(optimizer, "
    "cac_tf.losses.CACLoss()); classifier.fit(x, y); "
    "OpenSetClassifier.from_classifier(classifier, (x, y))."
)


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetClassifier(keras.Model):
    """A trained classifier with class centers, one score and a threshold.

    `from_classifier` makes one from any trained Keras classifier and known
    data. Only the threshold changes afterwards: `calibrate`, `set_threshold`.
    Another score, other data: a new object. It predicts, saves and exports;
    `predict` gives the dict of a call, and `predict_open_set` adds names and
    checks.

    A call returns a dict: the outputs of the classifier (`logits`, (B, D),
    usually `features`, and whatever else it returns by name), `distances` and
    `gamma`, (B, N), to and of the class centers, `unknown_score`, (B,)
    float32, larger = more unknown, `predicted_class_id` and `class_id`, (B,)
    int32, the latter -1 where the input is rejected.

    Args:
        classifier: built Keras model that ends in logits, or a dict with
            `logits`. It is taken as it is, and frozen unless `is_shared`.
        class_names: N >= 2 different texts.
        score: a name in `scores.names()`, or a `scores.Score`.
        centers: (N, D) class centers; or a number, the length of anchors.
        statistics: of the score, arrays by name, where it learns from data.
        threshold: a number or one for each class; None: not calibrated yet.
        features_layer: name of the classifier's layer whose output is the
            features. None: the input of its last dense layer.
        tta: test-time augmentation. None, or "flip": logits and features are
            means over an image and its mirror image, at twice the cost. Do not
            use it for images whose class changes when they are mirrored, such
            as digits and letters.
        input_shape: of one raw input, where the classifier has no `Input`.
        is_shared: whether somebody may train the classifier on. It is then
            not frozen, and a change of its weights is noticed.
        **kwargs: `name` of the model.

    Raises:
        ValueError: fewer than two classes, duplicate or reserved names, a
            score that does not exist or reads an output that there is not (the
            message lists those that there are), statistics of another score,
            centers of another shape or not finite, an invalid tta.
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
        **kwargs: Any,
    ) -> None:
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        names = check_class_names(class_names, reserved=UNKNOWN_NAME)
        super().__init__(**kwargs)
        self.class_names = tuple(names)
        self._score = score_rules.get(score)
        self.network = Network(
            classifier, features_layer, tta, input_shape, name="network"
        )
        self.require_outputs_for(self._score)
        self._make_centers(centers)
        self._names_of_statistics = tuple(sorted(statistics or {}))
        if self._score.IS_FITTED_TO_DATA and not statistics:
            raise ValueError(
                f"The score {self._score.name!r} has no statistics: "
                "from_classifier and with_score fit it to known data."
            )
        for name, values in sorted((statistics or {}).items()):
            # In an order of their own, which files keep; and each an attribute
            # of its own, as TensorFlow's checkpoints hold no dict of weights.
            setattr(
                self, f"statistic_{name}", self._weight(f"score_{name}", values)
            )
        self.decision = OpenSetDecision(name="decision")
        self.decision.build((None, len(names)))
        # (So TensorFlow knows what a SavedModel of its own takes.)
        self.build((None, *self.inputs_taken.shape))
        if threshold is not None:
            self.set_threshold(threshold)
        self._fingerprint = fingerprint(classifier) if is_shared else None
        if not is_shared:
            self.trainable = False
        # In a namespace, which Keras neither tracks nor saves.
        self._own = types.SimpleNamespace(
            predictor=prediction.Predictor(
                self, self.inputs_taken, ("logits", *_OF_CENTERS)
            )
        )

    def _make_centers(self, centers):
        shape = (len(self.class_names), self.network.width)
        self.magnitude, self.class_centers = None, None
        if np.ndim(centers) == 0:
            self.magnitude = anchored_distance.checked_magnitude(centers)
            if shape[1] < shape[0]:
                raise ValueError(
                    f"There are no anchors for {shape[0]} classes in "
                    f"{shape[1]} dimensions: give the centers of the classes."
                )
        elif np.shape(centers) != shape:
            raise ValueError(
                f"centers must have shape {shape}; got {np.shape(centers)}."
            )
        else:
            self.class_centers = self._weight("class_centers", centers)

    def _weight(self, name, values):
        # (Large statistics are written once.)
        return self.add_weight(
            name=name,
            shape=np.shape(values),
            initializer=lambda shape, dtype: ops.convert_to_tensor(
                np.asarray(values, "float32"), dtype
            ),
            dtype="float32",
            trainable=False,
            autocast=False,
        )

    # ---- parts ------------------------------------------------------------

    @property
    def classifier(self) -> keras.Model:
        """The Keras model that gives the logits."""
        return self.network.classifier

    @property
    def score(self) -> Score:
        """The rule that gives the unknown score."""
        return self._score

    @score.setter
    def score(self, value: Any) -> NoReturn:
        raise AttributeError(
            "A model keeps its score, because its threshold is one of that "
            "score. Another score makes another model: "
            'model.with_score("knn", (x, y)).'
        )

    @property
    def statistics(self) -> dict[str, Tensor]:
        """The statistics of the score, tensors by name."""
        return {
            name: ops.convert_to_tensor(getattr(self, f"statistic_{name}"))
            for name in self._names_of_statistics
        }

    @property
    def centers(self) -> np.ndarray:
        """(N, D) float32 array: the class centers."""
        if self.class_centers is not None:
            return ops.convert_to_numpy(self.class_centers)
        shape = (len(self.class_names), self.network.width)
        return np.float32(self.magnitude) * np.eye(*shape, dtype="float32")

    @property
    def has_anchors(self) -> bool:
        """Whether the centers are anchors."""
        return self.class_centers is None

    @property
    def tta(self) -> str | None:
        """Test-time augmentation: None or "flip"."""
        return self.network.tta

    @property
    def inputs_taken(self) -> InputKind:
        """Shape, type and range of raw inputs."""
        return self.network.inputs_taken

    def require_outputs_for(self, score: Score) -> None:
        """Raises ValueError unless there is all that a score reads."""
        for name in score.READS:
            if name not in _OF_CENTERS:
                self.network.require_output(name, f"The score {score.name!r}")
        width, num_classes = self.network.width, len(self.class_names)
        if score.NEEDS_A_LOGIT_OF_EACH_CLASS and width < num_classes:
            raise ValueError(
                f"The score {score.name!r} needs a logit of each class; the "
                f"classifier gives {width} for {num_classes} classes."
            )

    # ---- forward pass -----------------------------------------------------

    def build(self, input_shape: Shape) -> None:
        """Everything is made in the constructor."""
        self.built = True

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        outputs = self.with_decision(self.network(inputs))
        class_id = rule.decide(
            outputs["unknown_score"],
            outputs["predicted_class_id"],
            rule.threshold_of_rows(
                self.decision.thresholds, outputs["predicted_class_id"]
            ),
        )
        return {**outputs, "class_id": class_id}

    def distances_of(self, logits: Tensor, direct: bool = False) -> Tensor:
        """(B, N) distances of (B, D) logits to the class centers.

        Args:
            logits: tensor.
            direct: whether to form all differences directly, for any number
                of classes: no matrix product, but (B, N, D) memory.
        """
        if self.class_centers is None:
            distances = anchored_distance.anchored_distances(
                logits, self.magnitude
            )
            return distances[:, : len(self.class_names)]
        centers = ops.convert_to_tensor(self.class_centers)
        if direct:
            return anchored_distance.direct_distances(
                full_precision(logits), centers
            )
        return anchored_distance.dense_distances(logits, centers)

    def with_decision(
        self, outputs: Outputs, distances: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Outputs of the network with distances, gamma, score and class.

        Args:
            outputs: dict of tensors: `logits` and whatever the score reads.
            distances: (B, N); None: those of the logits.
        """
        if distances is None:
            distances = self.distances_of(outputs["logits"])
        outputs = {
            **outputs,
            "distances": distances,
            "gamma": rejection_scores(distances),
        }
        values, statistics = self.score.arguments_of(outputs), self.statistics
        outputs["unknown_score"] = self.score(*values, **statistics)
        outputs["predicted_class_id"] = self.score.predicted_class(
            outputs, **statistics
        )
        return outputs

    def outputs_of(
        self, inputs: Tensor, names: Iterable[str], *, single_view: bool = False
    ) -> dict[str, Tensor]:
        """Some of the outputs of a call, as tensors by name.

        Args:
            inputs: (B, ...) raw inputs.
            names: names of outputs.
            single_view: whether to take the images as they are, ignoring
                `tta`.
        """
        outputs = self.with_decision(self.network.call(inputs, single_view))
        return {name: outputs[name] for name in names}

    # ---- prediction -------------------------------------------------------

    def iterate_outputs(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        *,
        names: Iterable[str],
        single_view: bool = False,
    ) -> Iterator[Any]:
        """The outputs of the model for inputs, batch by batch.

        Args:
            x: array of inputs, or a data set of batches of inputs or
                (inputs, labels).
            y: labels for an array.
            batch_size: for arrays; None chooses by their shape.
            names, single_view: as in `outputs_of`.

        Yields:
            Outputs, a dict of NumPy arrays; labels or None; the inputs; and
            the position of the batch, for messages.

        Raises:
            ValueError: see `predict_scores`.
        """
        self.require_same_classifier()
        return self._own.predictor.batches(
            x, y, batch_size, tuple(names), single_view
        )

    def predict_scores(
        self, x: Any, batch_size: int | None = None
    ) -> prediction.OpenSetScores:
        """Distances and scores of inputs; needs no threshold.

        Args:
            x: array of inputs, or a data set of batches of inputs or
                (inputs, labels).
            batch_size: for arrays; None chooses by their shape.

        Returns:
            `OpenSetScores`, arrays in the order of the inputs.

        Raises:
            ValueError: no inputs, or one with NaN or infinity, or whose
                logits or distances are not finite (the message names its
                position).
        """
        names = prediction.OpenSetScores._fields
        return prediction.scores_of(
            self.iterate_outputs(x, batch_size=batch_size, names=names)
        )

    def predict_open_set(
        self, x: Any, batch_size: int | None = None
    ) -> prediction.OpenSetPrediction:
        """Classes of inputs, or "unknown" (equation 9).

        Args:
            x: array of raw inputs, or a data set of batches.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            `OpenSetPrediction`, arrays in the order of the inputs.

        Raises:
            ValueError: no threshold; see also `predict_scores`.
        """
        threshold = self.require_threshold()
        scores = self.predict_scores(x, batch_size)
        return prediction.decisions_of(scores, threshold, self.class_names)

    def evaluate(  # type: ignore[override]
        self, x: Any, y: Any = None, batch_size: int | None = None
    ) -> dict[str, float]:
        """How well inputs with labels are classified and rejected.

        Args:
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array; -1 for unknown inputs.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            Dict: `accuracy` of the known inputs before rejection; with unknown
            inputs `auroc`; with a threshold `true_positive_rate`, the share of
            the known inputs, and `false_positive_rate`, that of the unknown
            ones, that are accepted.
        """
        names = prediction.OF_SCORE
        return prediction.measures_of(
            self.iterate_outputs(x, y, batch_size, names=names),
            len(self.class_names),
            self.threshold,
        )

    # ---- threshold --------------------------------------------------------

    def calibrate(
        self,
        known: Any = None,
        y: Any = None,
        *,
        true_positive_rate: float | None = None,
        unknown: Any = None,
        false_positive_rate: float | None = None,
        by_class: bool = False,
        batch_size: int | None = None,
    ) -> float | np.ndarray:
        """Sets the threshold from data that was not used for training.

        Args:
            known: known inputs (array, (inputs, labels), or data set of
                batches); for `true_positive_rate`. Rows labelled -1 are left
                out.
            y: labels for an array of known inputs; they may be missing.
            true_positive_rate: wanted share of known inputs that are
                accepted.
            unknown: unknown inputs, whatever their labels; for
                `false_positive_rate`.
            false_positive_rate: largest share of unknown inputs to accept.
            by_class: whether each predicted class gets its own threshold, from
                the examples that are predicted as this class.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            The threshold, a number or (N,) numbers. An input is accepted if
            its unknown score is <= the threshold.

        Raises:
            ValueError: not exactly one rate, a rate outside (0, 1), no
                example of the kind that the rate needs, or labels of known
                inputs that are none.
        """
        if true_positive_rate is not None and false_positive_rate is None:
            data, rate = known, true_positive_rate
            rule_for = calibration.threshold_for_true_positive_rate
        elif false_positive_rate is not None and true_positive_rate is None:
            data, rate = unknown, false_positive_rate
            rule_for = calibration.threshold_for_false_positive_rate
        else:
            raise ValueError(
                "Give exactly one of true_positive_rate (accepted known "
                "inputs) and false_positive_rate (accepted unknown inputs)."
            )
        scores, class_ids = prediction.calibration_scores(
            ()
            if data is None
            else self.iterate_outputs(
                data,
                y if data is known else None,
                batch_size,
                names=prediction.OF_SCORE,
            ),
            len(self.class_names),
            known_only=true_positive_rate is not None,
        )
        threshold: float | np.ndarray = (
            calibration.thresholds_by_class(
                rule_for, scores, class_ids, len(self.class_names), rate
            )
            if by_class
            else rule_for(scores, rate)
        )
        self.decision.threshold = threshold
        return threshold

    @property
    def threshold(self) -> float | np.ndarray | None:
        """A number, (N,) numbers by class, or None while there is none.

        Setting it is `set_threshold`.
        """
        return self.decision.threshold

    @threshold.setter
    def threshold(self, value: ArrayLike | None) -> None:
        self.set_threshold(value)

    def set_threshold(self, threshold: ArrayLike | None) -> None:
        """Sets the threshold by hand.

        Args:
            threshold: a finite number, or one for each class; None: the model
                no longer has one.

        Raises:
            ValueError: something else, or a number below every possible
                score.
        """
        if threshold is not None:
            values = rule.check_threshold(threshold, len(self.class_names))
            if self.score.IS_NON_NEGATIVE and values.min() < 0:
                raise ValueError(
                    f"No score {self.score.name!r} is below 0, so a threshold "
                    f"of {threshold!r} would reject every input."
                )
        self.decision.threshold = threshold

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

        Nothing is trained: one pass over known data gives the class means and
        the statistics of the score. A softmax, or a sigmoid of two classes, at
        the classifier's end is taken off. The classifier is copied, so
        training it on does not change what was made.

        Class means are those of the examples that the classifier gets right
        (paper, section 3.1.2).

        Args:
            classifier: trained Keras model that ends in N logits, or in a
                softmax or log-softmax over them; for two classes also in one
                logit of the second class, or its sigmoid. Or a dict with such
                `logits`.
            data: array of known training inputs, or a data set of (inputs,
                labels) batches, or the pair (inputs, labels).
            y: (n,) class indices for an array.
            class_names: N different texts, in the order of the outputs; None:
                "0", "1", ...
            score: a name in `scores.names()`, or a `scores.Score`. None: one
                that rejects whatever is far from all known inputs, "vim", or
                "min_distance" where no features are found.
            validation_data: known data that was not trained on, as `data`. A
                threshold that accepts 95 % of them is set, and a score that
                wants such data is fitted to them.
            score_data: what the score is fitted to, if not `data`.
            centers: None: class means; "anchors"; or (N, D) centers.
            magnitude: length of the anchors, which a class keeps that has no
                example that is classified correctly.
            features_layer, tta: as for the class.
            copy: False: the classifier is shared, and a change of its weights
                is an error as soon as the model is used again.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            `OpenSetClassifier`, with a threshold if there is validation data.

        Raises:
            ValueError: as for the class; no data or labels, or invalid ones;
                too few examples for the score; a classifier with several
                outputs without names, or one that ends in something else, such
                as several sigmoids (multi-label).

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
            score: a name of `scores.names()`, or a `scores.Score`.
            data, y: known data, as of `from_classifier`, for a score that
                learns from them.
            statistics: of the score, in place of data.
            tta: as for the class; "same": as in this one.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            A new model, which shares the classifier with this one.

        Raises:
            ValueError: a score that learns from data without any, or that
                cannot be used with this classifier.
        """
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
            is_shared=self._fingerprint is not None,
        )

    def fit_scores(
        self,
        scores: Sequence[Score],
        data: Any,
        y: Any = None,
        batch_size: int | None = None,
    ) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, ValueError]]:
        """Statistics of any scores from known data, in one pass.

        Args:
            scores: list of `scores.Score`.
            data, y: as of `from_classifier`.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            Dict from the name of each score to its statistics; and dict from
            the name of each score that cannot be fitted to its ValueError.

        Raises:
            ValueError: no data or labels, or invalid ones.
        """
        self.require_same_classifier()
        return making.fit_scores(self, scores, (data, y), batch_size)

    # ---- not this way -----------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: the classifier is compiled, by plain Keras."""
        raise RuntimeError(_NOT_TRAINED)

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: the classifier is trained, by plain Keras."""
        raise RuntimeError(_NOT_TRAINED)

    train_on_batch = fit

    # ---- keeping ----------------------------------------------------------

    def save(
        self, filepath: Path, overwrite: bool = True, **kwargs: Any
    ) -> Any:
        """Saves the whole model: classifier, centers, score, threshold, names.

        The file is written under a temporary name and then renamed, so a full
        disk or a killed process leaves an earlier file intact.

        Raises:
            ValueError: the name does not end in `.keras`.
            FileExistsError: the file exists, and `overwrite` is false.
        """
        filepath = os.fspath(filepath)
        if not filepath.endswith(".keras"):
            raise ValueError(
                "The name of a model file must end in .keras; got "
                f"{filepath!r}. (A SavedModel is written by export.)"
            )
        self.require_same_classifier()
        if os.path.exists(filepath) and not overwrite:
            raise FileExistsError(f"{filepath} exists; pass overwrite=True.")
        with atomic_files.replacing(filepath) as temporary:
            super().save(temporary, overwrite=True, **kwargs)

    def export(
        self,
        filepath: Path,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
    ) -> None:
        """Writes a SavedModel with the rejection rule built in.

        `export.write_saved_model` says what it answers;
        `export.write_model_folder` makes a whole folder for TF Serving. The
        graph holds stock TensorFlow operations only.

        Args:
            filepath: folder to write. It is written under a temporary name
                and then renamed, so it is never incomplete.
            format: "tf_saved_model". (Other formats: `cac_tf.export`.)
            verbose: whether Keras prints what it wrote.

        Raises:
            ValueError: no threshold, another format.
            FileExistsError: `filepath` exists.
            RuntimeError: Keras runs on another backend than TensorFlow, a
                shared classifier was trained on, or it holds a compiled
                function with a fused operation, which no server knows.
        """
        from cac_tf.export import write_saved_model

        if format != "tf_saved_model":
            raise ValueError(
                f'format must be "tf_saved_model"; got {format!r}. '
                "export.write_litert and export.write_onnx write others."
            )
        write_saved_model(self, filepath, verbose=bool(verbose))

    def require_same_classifier(self):
        """Raises RuntimeError if a shared classifier was trained on."""
        if self._fingerprint is None:
            return
        if fingerprint(self.classifier) != self._fingerprint:
            raise RuntimeError(
                "The classifier's weights have changed since this model was "
                "made, so its centers, statistics and threshold are those of "
                "another classifier: make it anew by from_classifier."
            )

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        # Weights of another score may have the same shapes.
        store["score"] = np.frombuffer(self._identity.encode(), "uint8")

    def load_own_variables(self, store: Any) -> None:
        found = np.asarray(store["score"]).tobytes().decode()
        if found != self._identity:
            raise ValueError(
                f"The weights belong to a model with the score {found}, and "
                "their threshold is one of that score; this model has "
                f"{self._identity}."
            )
        names = list(store.keys())  # (Keras' stores have no other way.)
        super().load_own_variables(
            {name: store[name] for name in names if name != "score"}
        )

    @property
    def _identity(self):
        config = self.score.get_config()
        settings = ", ".join(f"{k}={v!r}" for k, v in sorted(config.items()))
        return f"{type(self.score).__name__}({settings})"

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "format": _FORMAT,
            "name": self.name,
            "classifier": serialize(self.classifier),
            "class_names": list(self.class_names),
            "score": serialize(self.score),
            "centers": self.magnitude
            if self.has_anchors
            else list(self.class_centers.shape),
            "statistics": {
                name: list(getattr(self, f"statistic_{name}").shape)
                for name in self._names_of_statistics
            },
            "features_layer": self.network.features_layer,
            "tta": self.tta,
            "input_shape": list(self.inputs_taken.shape),
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        found = config.pop("format", None)
        if found != _FORMAT:
            raise ValueError(
                "The model was saved by another version of cac_tf (its format "
                f"is {found}, this version's {_FORMAT}). Make it again, or "
                "load it with the version that saved it."
            )
        # Scores are imported, and so known to Keras, when one is looked up.
        score_rules.names()
        for key in ("classifier", "score"):
            config[key] = keras.saving.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )

        # Until the weights are loaded, nothing is finite.
        def unset(shape):
            return np.broadcast_to(np.float32(np.nan), tuple(shape))

        if not isinstance(config["centers"], (int, float)):
            config["centers"] = unset(config["centers"])
        config["statistics"] = {
            name: unset(shape) for name, shape in config["statistics"].items()
        }
        return cls(**config)


def claimed_bytes(config: Config) -> int:
    """Bytes of the weights that a config of `OpenSetClassifier` speaks of.

    Those of the classifier, which Keras makes, do not count.
    """
    shapes = list(config["statistics"].values())
    if not isinstance(config["centers"], (int, float)):
        shapes.append(config["centers"])
    return 4 * sum(math.prod(shape) for shape in shapes)


__all__ = ["OpenSetClassifier", "claimed_bytes"]
