# SPDX-License-Identifier: Apache-2.0
"""A Keras classifier that can answer "unknown"."""

import os
import types
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
from numpy.typing import ArrayLike

from cac_tf import atomic_files
from cac_tf import keras_private
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
from cac_tf.layers.anchored_distance import AnchoredDistance
from cac_tf.layers.open_set_decision import OpenSetDecision
from cac_tf.layers.rejection_score import RejectionScore
from cac_tf.models import compilation
from cac_tf.models import input_checks
from cac_tf.models import keras_classes  # noqa: F401
from cac_tf.models import known_data
from cac_tf.models import prediction
from cac_tf.models import training_checks
from cac_tf.models import weight_files
from cac_tf.models.backbone_checks import check_backbone
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.network import Network
from cac_tf.models.raw_inputs import RawInputs
from cac_tf.models.raw_inputs import check_takes_one_array

# Raised when saved models become other ones.
_FORMAT = 4
_OF_HEAD = ("distances", "gamma")


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetClassifier(keras_private.BuiltFromOneReplica, keras.Model):
    """Any Keras model that ends in logits, made able to reject unknown inputs.

    It combines a network with named outputs, a distance head, a score and a
    decision. Calling it returns a dict, in training and inference alike: the
    outputs of the network (`logits`, usually `features`, and whatever else the
    backbone returns by name), the `distances` to the class centers, and
    `gamma`. Compile it with losses that say what they read, such as
    `losses.CACLoss`. After `fit`:

    * `fit_centers` replaces the anchors by class means,
    * `calibrate` sets the threshold theta,
    * `predict_open_set` gives decisions; `save` and `export` keep them.

    `fit` starts from anchors and, like `fit_centers`, makes an earlier theta
    invalid. `metrics=["accuracy"]` is the accuracy of the predicted class.

    Validation data may contain unknown inputs with the label -1. Loss and
    accuracy ignore them; `metrics.OpenSetAUROC` uses them. Training data may
    contain them if a loss takes negatives.

    Args:
        backbone: Keras model or layer, (B, ...) -> (B, N) logits, or a dict
            with `logits` and anything else. A model that ends in a softmax or
            another bounded activation is refused.
        class_names: N >= 2 different texts; saved with the model.
        magnitude: length of the anchors (the paper's alpha).
        preprocessing: layer from raw inputs to what the backbone takes,
            `ImagePreprocessing` for images; part of the saved model.
        augmentation: layer applied only in training: one whose `call` has an
            argument `training`, as Keras' random layers and all models, must
            heed it. It comes between the two steps of `ImagePreprocessing`,
            on images in [0, 1], or after any other preprocessing.
        score: the rule that gives the unknown score: a name in
            `scores.names()`, e.g. "gamma", the smallest rejection score
            (equation 9), or a `scores.Score`.
        features_layer: name of the backbone's layer whose output is the
            features. None: the input of its last dense layer.
        tta: test-time augmentation. None, or "flip": outside training, logits
            and features are means over an image and its mirror image, at
            twice the cost. Do not use it for images whose class changes when
            they are mirrored, such as digits and letters.
        head: `AnchoredDistance` with N centers, in place of `magnitude`: for
            learnt centers, or centers of a width other than N.
        **kwargs: passed to `keras.Model`.

    Raises:
        ValueError: fewer than two classes, duplicate or reserved names, a
            backbone with another number of outputs or a bounded activation,
            a score that does not exist, an invalid tta, a head with another
            number of centers; when built: an output that the score or a loss
            reads but the network does not return (the message lists those
            that it returns).

    Example:

    >>> import keras, numpy as np, cac_tf
    >>> x = np.float32([[0, 1], [1, 0]] * 32)
    >>> y = np.array([0, 1] * 32)
    >>> backbone = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(backbone, ["left", "right"])
    >>> model.compile(keras.optimizers.SGD(0.1), cac_tf.losses.CACLoss())
    >>> history = model.fit(x, y, epochs=40, verbose=0)
    >>> counts = model.fit_centers(x, y)
    >>> theta = model.calibrate(x, true_positive_rate=0.9)
    >>> prediction = model.predict_open_set(np.float32([[0, 1], [9, 9]]))
    >>> [str(name) for name in prediction.label]
    ['left', 'unknown']
    """

    def __init__(
        self,
        backbone: keras.Layer,
        class_names: Sequence[str],
        magnitude: float = MAGNITUDE,
        preprocessing: keras.Layer | None = None,
        augmentation: keras.Layer | None = None,
        score: str | score_rules.Score = "gamma",
        features_layer: str | None = None,
        tta: str | None = None,
        head: AnchoredDistance | None = None,
        **kwargs: Any,
    ) -> None:
        # Not the global policy: it would cast raw pixels to half precision.
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        class_names = check_class_names(class_names, reserved=UNKNOWN_NAME)
        check_takes_one_array(backbone, "The backbone")
        check_takes_one_array(preprocessing, "The preprocessing")
        if head is None:
            head = AnchoredDistance(
                len(class_names), magnitude, name="distance_head"
            )
        elif head.num_classes != len(class_names):
            raise ValueError(
                f"The head has {head.num_classes} centers for "
                f"{len(class_names)} class names."
            )
        check_backbone(backbone, head.width)
        score = score_rules.get(score)
        super().__init__(**kwargs)
        self.network = Network(
            backbone,
            preprocessing,
            augmentation,
            features_layer,
            tta,
            name="network",
        )
        self.score = score
        self.class_names = tuple(class_names)
        self.distance_head = head
        self.rejection_score = RejectionScore(name="rejection_score")
        self.decision = OpenSetDecision(name="decision")
        # In namespaces, which Keras neither tracks nor saves: metrics are not
        # part of the model, and the model is not part of itself.
        self._compiled = types.SimpleNamespace(
            terms=[], watched=[], loss=None, arguments={}
        )
        self._own = types.SimpleNamespace(
            predictor=prediction.Predictor(self),
            # Of the head, when the functions of Keras were compiled.
            layout=head.layout,
        )

    # ---- parts ------------------------------------------------------------

    @property
    def backbone(self) -> keras.Layer:
        """The model that gives the logits."""
        return self.network.backbone

    @property
    def preprocessing(self) -> keras.Layer | None:
        """The layer before the backbone, or None."""
        return self.network.preprocessing

    @property
    def augmentation(self) -> keras.Layer | None:
        """The layer that augments in training, or None."""
        return self.network.augmentation

    @property
    def features_layer(self) -> str | None:
        """Name of the layer whose output is the features, or None."""
        return self.network.features_layer

    @property
    def tta(self) -> str | None:
        """Test-time augmentation: None or "flip"."""
        return self.network.tta

    @property
    def raw_input_shape(self) -> Shape:
        """Shape of one raw input, e.g. (height, width, channels)."""
        return self.network.raw_input_shape

    @property
    def raw_input_dtype(self) -> str:
        """Type of raw inputs: "float32", or e.g. "int32" for token ids."""
        return self.network.raw_input_dtype

    @property
    def centers(self) -> np.ndarray:
        """(N, D) float32 array: the class centers in force."""
        if not self.built:
            raise ValueError("The model is not built yet: fit or call it.")
        return self.distance_head.centers

    @property
    def names_of_outputs(self) -> tuple[str, ...]:
        """Names of the outputs that a call returns."""
        return (*self.network.names_of_outputs, *_OF_HEAD)

    @property
    def has_features(self) -> bool:
        """Whether scores that need features can be used with this model."""
        return "features" in self.network.names_of_outputs

    # ---- forward pass -----------------------------------------------------

    def build(self, input_shape: Shape) -> None:
        if self.built:  # type: ignore[has-type]
            return
        self.network.build(input_shape)
        if (self.network.width, self.distance_head.width) == (1, 2):
            raise ValueError(
                "The backbone has one output for two classes, and as its code "
                "is its own, this may be a logit or a probability: let it "
                "return two logits, -z/2 and z/2."
            )
        if not self.distance_head.built:
            # (A loaded one is already built.)
            self.distance_head.build((None, self.network.width))
        shape = (None, len(self.class_names))
        self.rejection_score.build(shape)
        self.decision.build(shape)
        self.score.build()
        # Better found out now than after training.
        self.require_outputs_for(self.score)
        compiled = self._compiled
        for name, reader in compilation.read_names(
            compiled.terms, compiled.watched
        ):
            self.require_output(name, reader)
        self.built = True

    def require_output(self, name: str, what: str) -> None:
        """Raises ValueError unless there is an output of this name.

        Args:
            name: name of the output.
            what: what reads it; the subject of the message.
        """
        if name not in _OF_HEAD:
            self.network.require_output(name, what)

    def require_outputs_for(self, score: score_rules.Score) -> None:
        """Raises ValueError unless there is all that a score reads."""
        for name in score.READS:
            self.require_output(name, f"The score {score.name!r}")
        self._require_logits_for(score)

    def _require_logits_for(self, score):
        width, num_classes = self.distance_head.width, len(self.class_names)
        if score.NEEDS_A_LOGIT_OF_EACH_CLASS and width < num_classes:
            raise ValueError(
                f"The score {score.name!r} needs a logit of each class; the "
                f"head has {width} for {num_classes} classes."
            )

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        return self._with_head(self.network(inputs, training=training))

    def _with_head(self, outputs):
        distances = self.distance_head(outputs["logits"])
        gamma = self.rejection_score(distances)
        return {**outputs, "distances": distances, "gamma": gamma}

    def outputs_of(
        self, inputs: Tensor, names: Iterable[str], *, single_view: bool = False
    ) -> dict[str, Tensor]:
        """Some of the outputs at inference, as tensors by name.

        Args:
            inputs: (B, ...) raw inputs.
            names: names in `names_of_outputs`, and the results of the score,
                "unknown_score" and "predicted_class_id".
            single_view: whether to take the images as they are, ignoring
                `tta`.
        """
        outputs = self.network(inputs, training=False, single_view=single_view)
        outputs = self.with_score_outputs(self._with_head(outputs), names)
        return {name: outputs[name] for name in names}

    def with_score_outputs(
        self, outputs: Outputs, names: Iterable[str] = prediction.OF_SCORE
    ) -> dict[str, Tensor]:
        """The outputs, together with those of the score that `names` has.

        Args:
            outputs: dict of tensors: `logits`, `distances`, `gamma`, ...
            names: names of the wanted outputs.
        """
        outputs = dict(outputs)
        if "unknown_score" in names:
            values = self.score.arguments_of(outputs)
            outputs["unknown_score"] = self.score(*values)
        if "predicted_class_id" in names:
            outputs["predicted_class_id"] = self.score.predicted_class(outputs)
        return outputs

    # ---- training ---------------------------------------------------------

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Sequence[float] | None = None,
        weighted_metrics: Any = None,
        auto_scale_loss: bool = True,
        **kwargs: Any,
    ) -> None:
        """Like `keras.Model.compile`, with losses that say what they read.

        Args:
            optimizer: as in Keras.
            loss: a loss of `cac_tf.losses`; a dict from an output's name to
                any Keras loss, e.g. {"logits": keras.losses...}; or a list of
                these, which are summed.
            metrics: a list of "accuracy" and metrics of `cac_tf.metrics`; or
                a dict from an output's name to any Keras metrics.
            loss_weights: one number for each of several losses.
            weighted_metrics: like `metrics`; sample weights count in them.
            auto_scale_loss: as in Keras.
            **kwargs: as in Keras.

        Raises:
            ValueError: a loss or metric that does not say what it reads, a
                stock loss on distances, or an output that does not exist.
        """
        terms = compilation.terms(loss, loss_weights)
        watched = compilation.metrics(metrics, weighted_metrics, self.score)
        for name, reader in compilation.read_names(terms, watched):
            self._check_read_name(name, reader)
        arguments = {
            "optimizer": optimizer,
            "loss": loss,
            "metrics": metrics,
            "loss_weights": loss_weights,
            "weighted_metrics": weighted_metrics,
            "auto_scale_loss": auto_scale_loss,
            **kwargs,
        }
        optimizer = keras.optimizers.get(optimizer)
        if (
            auto_scale_loss
            and "float16" in keras_private.compute_dtypes(self.backbone)
            and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        ):
            # Keras looks only at the policy of the outermost model.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        arguments["optimizer"] = optimizer
        self._compiled = types.SimpleNamespace(
            terms=terms,
            watched=watched,
            # Weights each batch by the number of inputs that count; Keras' own
            # tracker weights it by all inputs.
            loss=keras.metrics.Mean(name="loss"),
            arguments=arguments,
        )
        super().compile(optimizer=optimizer, **kwargs)
        self.loss = loss
        # Those of Keras, it forgets too.
        self._own.predictor.forget_functions()

    def _check_read_name(self, name, reader):
        """`require_output`; before the network is built, as far as known."""
        there = self.network.outputs_seen()
        if self.built:
            self.require_output(name, reader)
        elif there and name not in (*there, *_OF_HEAD):
            raise ValueError(
                f"{reader} reads {name!r}; the backbone returns "
                f"{', '.join(there)}. Let it return a dict with {name!r} in it."
            )

    @property
    def metrics(self) -> list[Any]:
        compiled = self._compiled
        if compiled.loss is None:
            return []
        return [compiled.loss, *(w.metric for w in compiled.watched)]

    def get_compile_config(self) -> Config | None:
        serialize = keras.saving.serialize_keras_object
        return {k: serialize(v) for k, v in self._compiled.arguments.items()}

    def compile_from_config(self, config: Config) -> None:
        # Keras does not compile a loaded model whose compile() is overridden.
        self.compile(
            **{
                key: keras.saving.deserialize_keras_object(value)
                for key, value in config.items()
            }
        )
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force: bool = False) -> Any:
        self._forget_functions_of_other_weights()
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        self._forget_functions_of_other_weights()
        return super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        self._forget_functions_of_other_weights()
        return super().make_predict_function(force)

    def _forget_functions_of_other_weights(self):
        """Functions compiled earlier do not know weights added later."""
        if self._own.layout != self.distance_head.layout:
            self._own.layout = self.distance_head.layout
            self.train_function = None
            self.test_function = None
            self.predict_function = None

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """The total loss of the outputs of a batch.

        Args:
            x: not used.
            y: labels.
            y_pred: dict of outputs, as a call gives it.
            sample_weight: None or (B,).
            training: whether it is a training step.
        """
        if not self._compiled.terms:
            raise ValueError(
                "There is no loss to compute: pass compile(loss=...)."
            )
        outputs = dict(y_pred)
        if training and self.distance_head.anchors is not None:
            outputs["anchors"] = self.distance_head.anchors
        parts = compilation.losses_of(
            self._compiled.terms, y, outputs, sample_weight, training
        )
        # Of regularizers; Keras scales them under tf.distribute.
        of_weights = super().compute_loss() if self.losses else 0.0
        sum_of_parts = sum(one for one, _ in parts)
        takes_all = training and self.takes_negatives
        self._compiled.loss.update_state(
            compilation.unscaled(sum_of_parts + of_weights),
            compilation.number_of_rows(y, only_known=not takes_all),
        )
        loss = compilation.part_of_whole(parts) if training else sum_of_parts
        return loss + of_weights

    def compute_metrics(
        self,
        x: Any,
        y: Any,
        y_pred: Outputs,
        sample_weight: Tensor | None = None,
    ) -> dict[str, Any]:
        for watched in self._compiled.watched:
            watched.update(y, y_pred, sample_weight)
        return self.get_metrics_result()

    @property
    def takes_negatives(self) -> bool:
        """Whether a loss trains on inputs labelled -1."""
        return any(term.takes_negatives for term in self._compiled.terms)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains as `keras.Model.fit` does, with anchors as centers.

        Labels and images are checked first: arrays as a whole, data sets
        batch by batch. Theta becomes invalid. Learnt centers, like other
        weights, continue from their current values.

        Raises:
            ValueError: a label that is not a whole number in 0...N-1 (-1 is
                also allowed in validation data, and in training if a loss
                takes negatives), one-hot labels, a class without an example,
                an image with NaN or infinity.
            FloatingPointError: the loss became NaN or infinite.
        """
        y = input_checks.as_labels(y)
        x, counts, inputs = training_checks.checked_training_data(self, x, y)
        validation_data = training_checks.checked_validation_data(
            self, validation_data
        )
        callbacks = training_checks.with_own_callbacks(
            callbacks,
            self._start_from_anchors,
            inputs_are_checked=counts is not None,
            metrics=self.metrics,
        )
        try:
            history = super().fit(
                x,
                y,
                batch_size=batch_size,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_split=validation_split,
                validation_data=validation_data,
                **kwargs,
            )
        except Exception as error:
            own = input_checks.unwrap_dataset_error(error)
            if own is None:
                raise
            raise own from None
        inputs.finish()
        if counts is not None and counts.any() and not counts.all():
            # For a data set this is known only now.
            absent = input_checks.absent_classes(counts, self.class_names)
            warnings.warn(
                f"These classes had no training example: {absent}.",
                stacklevel=2,
            )
        return history

    def evaluate(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As `keras.Model.evaluate`; both may be lists, as in `fit`."""
        y = input_checks.as_labels(y)
        x = input_checks.as_data(x)
        return super().evaluate(x, y, *args, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        y = input_checks.as_labels(y)
        x = input_checks.as_data(x)
        training_checks.check_batch(
            self, x, y, self.takes_negatives, RawInputs(self.network)
        )
        if self.compiled:  # Or an error of Keras, which changes nothing.
            self._start_from_anchors()
        return super().train_on_batch(
            x, y, sample_weight=sample_weight, **kwargs
        )

    def test_on_batch(
        self, x: Any, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As `keras.Model.test_on_batch`; both may be lists, as in `fit`."""
        y = input_checks.as_labels(y)
        x = input_checks.as_data(x)
        return super().test_on_batch(x, y, *args, **kwargs)

    def _start_from_anchors(self):
        head = self.distance_head
        if head.trains_with_anchors and not head.has_anchors:
            head.assign_anchors()
        self.decision.threshold = None
        self.score.reset()

    # ---- after training ---------------------------------------------------

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
                position); a score that is not fitted.
        """
        self.require_fitted_score()
        return prediction.scores_of(
            self.iterate_outputs(
                x, batch_size=batch_size, names=prediction.OpenSetScores._fields
            )
        )

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
            names: names of the outputs, as in `outputs_of`.
            single_view: as in `outputs_of`.

        Yields:
            Outputs, a dict of NumPy arrays; labels or None; the inputs; and
            the position of the batch, for messages.

        Raises:
            ValueError: see `predict_scores`.
        """
        return self._own.predictor.batches(
            x, y, batch_size, tuple(names), single_view
        )

    def fit_centers(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        with_score: bool = True,
    ) -> np.ndarray:
        """Replaces the anchors by class means of the logits.

        Means are taken over the training examples that are classified
        correctly *relative to the anchors*, so calling it twice changes
        nothing. (Where centers are learnt, or there are no anchors, relative
        to the centers in force.) A score that learns from known data is
        fitted in the same pass. Memory does not grow with the data, except
        for what the score documents that it keeps. A class without a correct
        example keeps its anchor, and a warning names it. Theta becomes
        invalid.

        Args:
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays; None chooses by their shape.
            with_score: whether a score that learns from known data is fitted
                too.

        Returns:
            (N,) int64, the number of examples in each mean.

        Raises:
            ValueError: no data or labels, invalid labels or inputs, logits
                that are not finite or are probabilities, or too few examples
                for the score. The model stays as it was.
        """
        estimate = known_data.CenterEstimate(self.class_names)
        problems = known_data.learn(
            self,
            "fit_centers",
            [self.score] if with_score else [],
            (x, y, batch_size),
            estimate,
        )
        if problems:
            raise problems[self.score.name]
        head = self.distance_head
        start = head.start if head.trains_with_anchors else head.centers
        head.replace_centers(estimate.centers(otherwise=start))
        self.decision.threshold = None
        estimate.warn_of_absent_classes()
        return estimate.counts

    def fit_score(
        self, x: Any, y: Any = None, batch_size: int | None = None
    ) -> None:
        """Fits the score to known data, if it learns from them.

        `fit_centers` does this with the training data. This method does it
        with other data and leaves the centers alone: `scores.ClassZScore`, for
        example, should be fitted to data that was not used for training. Theta
        becomes invalid.

        Args:
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays; None chooses by their shape.

        Raises:
            ValueError: no data or labels, invalid labels or inputs, or too
                few of them for the score.
        """
        if self.score.IS_FITTED_TO_DATA:
            problems = known_data.learn(
                self, "fit_score", [self.score], (x, y, batch_size)
            )
            if problems:
                raise problems[self.score.name]

    def fit_scores(
        self,
        scores: Sequence[score_rules.Score],
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
    ) -> dict[str, ValueError]:
        """Fits any scores to this model's outputs on known data, in one pass.

        Args:
            scores: list of `scores.Score`; those that learn from data are
                fitted.
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            Dict from the name of each score that these data cannot fit to its
            ValueError. The others are fitted.

        Raises:
            ValueError: no data or labels, or invalid ones; or a score that
                needs a logit of each class, where the head is narrower.
        """
        for score in scores:
            self._require_logits_for(score)
        return known_data.learn(self, "fit_scores", scores, (x, y, batch_size))

    def calibrate(
        self,
        known: Any = None,
        *,
        true_positive_rate: float | None = None,
        unknown: Any = None,
        false_positive_rate: float | None = None,
        by_class: bool = False,
        batch_size: int | None = None,
    ) -> float | np.ndarray:
        """Sets theta from data that was not used for training.

        Args:
            known: known inputs (array, (inputs, labels), or data set of
                batches); for `true_positive_rate`. Rows labelled -1 are left
                out.
            true_positive_rate: wanted share of known inputs that are
                accepted.
            unknown: unknown inputs, whatever their labels; for
                `false_positive_rate`.
            false_positive_rate: largest share of unknown inputs to accept.
            by_class: whether each predicted class gets its own theta, from
                the examples that are predicted as this class.
            batch_size: for arrays; None chooses by their shape.

        Returns:
            Theta, a number or (N,) numbers. An input is accepted if its
            unknown score is <= theta.

        Raises:
            ValueError: not exactly one rate, a rate outside (0, 1), no
                example of the kind that the rate needs, or labels of known
                inputs that are none.
        """
        threshold: Callable[[ArrayLike, float], float]
        if true_positive_rate is not None and false_positive_rate is None:
            data, rate = known, true_positive_rate
            threshold = calibration.threshold_for_true_positive_rate
        elif false_positive_rate is not None and true_positive_rate is None:
            data, rate = unknown, false_positive_rate
            threshold = calibration.threshold_for_false_positive_rate
        else:
            raise ValueError(
                "Give exactly one of true_positive_rate (accepted known "
                "inputs) and false_positive_rate (accepted unknown inputs)."
            )
        self.require_fitted_score()
        scores, class_ids = prediction.calibration_scores(
            ()
            if data is None
            else self.iterate_outputs(
                data, batch_size=batch_size, names=prediction.OF_SCORE
            ),
            len(self.class_names),
            known_only=true_positive_rate is not None,
        )
        theta: float | np.ndarray
        if by_class:
            theta = calibration.thresholds_by_class(
                threshold, scores, class_ids, len(self.class_names), rate
            )
        else:
            theta = threshold(scores, rate)
        self.decision.threshold = theta
        return theta

    def require_fitted_score(self) -> None:
        """Raises ValueError while the score lacks statistics."""
        if not self.score.is_fitted:
            raise ValueError(
                f"The score {self.score.name!r} has no statistics yet: call "
                "fit_centers(x_train, y_train), or fit_score, first. (fit "
                "makes earlier ones invalid.)"
            )

    @property
    def threshold(self) -> float | np.ndarray | None:
        """Theta: a number, (N,) numbers by class, or None while there is none.

        Setting it is `set_threshold`.
        """
        return self.decision.threshold

    @threshold.setter
    def threshold(self, value: ArrayLike | None) -> None:
        self.set_threshold(value)

    def set_threshold(self, threshold: ArrayLike | None) -> None:
        """Sets theta by hand.

        Args:
            threshold: a finite number, or one for each class; None: the model
                no longer has a valid theta.

        Raises:
            ValueError: something else, or a number below every possible
                score.
        """
        if threshold is not None:
            values = rule.check_threshold(threshold, len(self.class_names))
            if self.score.IS_NON_NEGATIVE and values.min() < 0:
                raise ValueError(
                    f"No score {self.score.name!r} is below 0, so theta = "
                    f"{threshold!r} would reject every input."
                )
        self.decision.threshold = threshold

    def require_threshold(self) -> float | np.ndarray:
        """Theta; raises ValueError while the model has no valid one."""
        theta = self.threshold
        if theta is None:
            raise ValueError(
                "The model has no valid threshold theta, so it cannot decide "
                "between known and unknown: call calibrate() first. (fit and "
                "fit_centers make an earlier theta invalid; predict_scores "
                "works without one.)"
            )
        return theta

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
            ValueError: no valid theta; no inputs; an input that holds NaN or
                infinity or whose logits are not finite, with its position.
        """
        theta = self.require_threshold()
        scores = self.predict_scores(x, batch_size)
        return prediction.decisions_of(scores, theta, self.class_names)

    def with_score(
        self, score: str | score_rules.Score, tta: str | None = "same"
    ) -> Self:
        """The same classifier with another score, without a threshold.

        The score is copied, with what it has learnt. Backbone, preprocessing
        and augmentation are shared with this model, not copied: training one
        trains both.

        Args:
            score: a name of `scores.names()`, or a `scores.Score`.
            tta: as for the class; "same": as in this one.

        Returns:
            `OpenSetClassifier`, not compiled; logits and centers are those of
            this one.
        """
        score = score_rules.get(score).copy()
        head = AnchoredDistance.from_config(self.distance_head.get_config())
        other = type(self)(
            self.backbone,
            self.class_names,
            preprocessing=self.preprocessing,
            augmentation=self.augmentation,
            score=score,
            features_layer=self.features_layer,
            tta=self.tta if tta == "same" else tta,
            head=head,
        )
        other.build((None, *self.raw_input_shape))
        head.copy_centers(self.distance_head)
        return other

    @classmethod
    def from_classifier(
        cls,
        classifier: keras.Layer,
        class_names: Sequence[str],
        score: str | score_rules.Score | None = None,
        *,
        features_layer: str | None = None,
        tta: str | None = None,
        preprocessing: keras.Layer | None = None,
    ) -> Self:
        """Makes a trained Keras classifier able to reject unknown inputs.

        Nothing is trained. A softmax at the classifier's end is taken off; all
        other layers are shared with it, not copied. `fit_centers` with its
        training data fits the class means of the logits and the score, and
        `calibrate` sets theta. Then the model predicts, saves and exports like
        any `OpenSetClassifier`.

        Args:
            classifier: trained Keras model that ends in N logits, or in a
                softmax or log-softmax over them; for two classes also in one
                logit of the second class, or its sigmoid. Or a dict with such
                `logits`.
            class_names: N different texts, in the order of its outputs.
            score: as for the class. None: a score that rejects whatever is
                far from all known inputs, "vim", or "min_distance" where no
                features are found. (Training with cross-entropy does not pull
                the logits together around the class means, of which "gamma"
                and "min_distance" are distances.)
            features_layer: as for the class.
            tta: as for the class.
            preprocessing: layer from raw inputs to what the classifier takes.

        Returns:
            `OpenSetClassifier`, not compiled.

        Raises:
            ValueError: as for the class; or a classifier with several outputs
                without names, or one that ends in something else, such as
                several sigmoids (multi-label).

        Example:

        >>> import keras, numpy as np, cac_tf
        >>> keras.utils.set_random_seed(0)
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> x = np.float32(3 * np.eye(2, 4)[y] + rng.normal(size=(200, 4)))
        >>> inputs = keras.Input([4])
        >>> hidden = keras.layers.Dense(8, activation="relu")(inputs)
        >>> outputs = keras.layers.Dense(2, activation="softmax")(hidden)
        >>> trained = keras.Model(inputs, outputs)
        >>> model = cac_tf.OpenSetClassifier.from_classifier(
        ...     trained, ["left", "right"], score="knn")
        >>> counts = model.fit_centers(x, y)
        >>> theta = model.calibrate(x, true_positive_rate=0.95)
        >>> bool(np.mean(model.predict_open_set(x).is_unknown) <= 0.05)
        True
        """
        from cac_tf.models.wrapping import wrap_classifier

        return wrap_classifier(
            cls,
            classifier,
            class_names,
            score=score,
            features_layer=features_layer,
            tta=tta,
            preprocessing=preprocessing,
        )

    # ---- keeping ----------------------------------------------------------

    def save(
        self, filepath: Path, overwrite: bool = True, **kwargs: Any
    ) -> Any:
        """Saves the whole model: weights, centers, theta, names, statistics.

        The file is written under a temporary name and then renamed, so a full
        disk or a killed process leaves an earlier file intact.
        """
        filepath = os.fspath(filepath)
        if not filepath.endswith(".keras"):
            return super().save(filepath, overwrite=overwrite, **kwargs)
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

        Its signatures are `serving_default` (float32 images, or other raw
        inputs), `uint8_images`, `encoded_images` (JPEG, PNG or WebP files),
        `with_threshold` (one threshold per row) and `classify`; see
        `export.write_model_folder`, which makes a whole folder for TF
        Serving. An answer has, for each row, `class_id` (-1: unknown),
        `label`, `is_unknown`, `unknown_score`, `predicted_class_id`, `gamma`,
        `distances`, `probabilities`, `threshold`, `model_version` (here 0)
        and `is_valid`. The graph holds stock TensorFlow operations only.

        Args:
            filepath: folder to write. It is written under a temporary name
                and then renamed, so it is never incomplete.
            format: "tf_saved_model". (Other formats: `cac_tf.export`.)
            verbose: whether Keras prints what it wrote.

        Raises:
            ValueError: no valid theta, a model that was never built, another
                format.
            FileExistsError: `filepath` exists.
            RuntimeError: Keras runs on another backend than TensorFlow, or
                the backbone holds a compiled function with a fused operation,
                which no server knows.
        """
        from cac_tf.export import write_saved_model

        if format != "tf_saved_model":
            raise ValueError(
                f'format must be "tf_saved_model"; got {format!r}. '
                "export.write_litert and export.write_onnx write others."
            )
        write_saved_model(self, filepath, verbose=bool(verbose))

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        weight_files.save_record(self.score, store)

    def load_own_variables(self, store: Any) -> None:
        # Before the score's own weights.
        super().load_own_variables(weight_files.load_record(self.score, store))

    def set_weights(self, weights: Sequence[Any]) -> None:
        weight_files.check_number(self, weights)
        super().set_weights(weights)

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "format": _FORMAT,
            "name": self.name,
            "backbone": serialize(self.backbone),
            "class_names": list(self.class_names),
            "head": serialize(self.distance_head),
            "preprocessing": serialize(self.preprocessing),
            "augmentation": serialize(self.augmentation),
            "score": serialize(self.score),
            "features_layer": self.features_layer,
            "tta": self.tta,
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
                f"is {found}, this version's {_FORMAT}). Train it again, or "
                "load it with the version that saved it."
            )
        # Scores are imported, and so known to Keras, when one is looked up.
        score_rules.names()
        for key in (
            "backbone",
            "head",
            "preprocessing",
            "augmentation",
            "score",
        ):
            config[key] = keras.saving.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )
        return cls(**config)

    def get_build_config(self) -> Config | None:
        if not self.built:
            return None
        return {"input_shape": (None, *self.raw_input_shape)}
