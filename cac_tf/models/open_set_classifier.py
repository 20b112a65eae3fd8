# SPDX-License-Identifier: Apache-2.0
"""A Keras classifier that can answer "unknown"."""

import os
import threading
import typing
import warnings

import keras
import numpy as np
from keras import ops

from cac_tf import atomic_files
from cac_tf import calibration
from cac_tf import ops as fused_ops
from cac_tf import scores as score_rules
from cac_tf.export.saved_model import write_saved_model
from cac_tf.layers.anchored_distance import AnchoredDistance
from cac_tf.layers.open_set_decision import UNKNOWN
from cac_tf.layers.open_set_decision import UNKNOWN_NAME
from cac_tf.layers.open_set_decision import OpenSetDecision
from cac_tf.layers.rejection_score import RejectionScore
from cac_tf.losses.cac import CACLoss
from cac_tf.losses.cac import cac_loss_from_logits
from cac_tf.losses.cac import weights_of_counted
from cac_tf.metrics.streaming import NearestCentreAccuracy
from cac_tf.models import input_checks
from cac_tf.models.backbone_checks import check_backbone
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.backbone_checks import uses_float16
from cac_tf.models.features import flat
from cac_tf.models.features import last_layer_of
from cac_tf.models.features import with_features
from cac_tf.models.features import without_softmax
from cac_tf.scores.fitting import Fitting
from cac_tf.scores.statistics import ClassMoments

_CHECKED_WHERE_PRESENT = {
    "features": "Features",
    "unknown_score": "Unknown scores",
}
# Values of the argument `views`.
VIEWS = (None, "flip")


class OpenSetScores(typing.NamedTuple):
    """What a model says of inputs without a threshold; n inputs, N classes."""

    logits: np.ndarray  # (n, N) float32
    distances: np.ndarray  # (n, N) float32, to the centres in force
    gamma: np.ndarray  # (n, N) float32 rejection scores
    unknown_score: np.ndarray  # (n,) float32, larger = more unknown
    nearest_class_id: np.ndarray  # (n,) int32 in 0...N-1


class OpenSetPrediction(typing.NamedTuple):
    """Decisions of `OpenSetClassifier.predict_open_set`, for n inputs."""

    class_id: np.ndarray  # (n,) int32 in 0...N-1, or -1 for unknown
    label: np.ndarray  # (n,) class name, or "unknown"
    is_unknown: np.ndarray  # (n,) bool
    unknown_score: np.ndarray  # (n,) float32
    nearest_class_id: np.ndarray  # (n,) int32, also where rejected
    gamma: np.ndarray  # (n, N) float32
    distances: np.ndarray  # (n, N) float32


class _StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Ends training with an error when the loss is NaN or infinite."""

    def __init__(self, inputs_are_checked):
        super().__init__()
        self._inputs_are_checked = inputs_are_checked
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = (logs or {}).get("loss")
        if loss is None or np.isfinite(float(loss)):
            return
        cause = (
            "Labels and images were checked and are in order, so the training "
            "diverged: a lower learning rate is the usual remedy."
        )
        if not self._inputs_are_checked:
            cause = (
                "This kind of data set could not be checked on the way in. "
                "Either a label is no whole number in 0...N-1 (its loss is "
                "then NaN), or an image holds NaN or infinity, or the "
                "training diverged (use a lower learning rate)."
            )
        raise FloatingPointError(
            f"The loss became {float(loss)} in epoch {self._epoch + 1}, batch "
            f"{batch}. {cause} The weights are no longer usable."
        )


class _TrainingStep(threading.local):
    """The logits behind the distances that a model has just returned.

    A model returns distances, since metrics want them; the loss of the same
    step can be had from the logits at once. One for each thread, because
    tf.distribute traces every replica in a thread of its own.
    """

    _pair = (None, None)

    def remember(self, logits, distances):
        if fused_ops.binding_for(logits) is not None:
            self._pair = (logits, distances)

    def logits_behind(self, distances):
        """The logits, once, if `distances` is what they led to; or None."""
        logits, remembered = self._pair
        self._pair = (None, None)
        return logits if distances is remembered else None


_training_step = _TrainingStep()


class _CACLossFromLogits(CACLoss):
    """`CACLoss` of a training step, by the fused operation.

    The second argument of a call is the pair (logits, distances). While the
    centres are anchors the loss comes from the logits.
    """

    def __init__(self, head, loss):
        super().__init__(**loss.get_config())
        self._magnitude = head.magnitude
        # Not the layer: Keras would save its weights as those of this loss.
        self._has_anchors = lambda: ops.equal(head.centres_are_anchors, True)

    def call(self, y_true, y_pred):
        logits, distances = y_pred
        return ops.cond(
            self._has_anchors(),
            # An invalid row is NaN, as with stock operations: `fit` then says
            # what happened, and a scaled loss may overflow now and then.
            lambda: cac_loss_from_logits(
                y_true,
                logits,
                self._magnitude,
                self.anchor_weight,
                validate=False,
            ),
            lambda: super(_CACLossFromLogits, self).call(y_true, distances),
        )


@keras.saving.register_keras_serializable(package="CacTf")
class _MeanLossOverKnown(keras.metrics.Mean):
    """The running loss, each batch weighted by its number of known inputs.

    Takes the place of Keras' own tracker, which weighs by all inputs. Keras
    updates it without knowing which those are, so that update is ignored.
    """

    def __init__(self, name="loss", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, values, sample_weight=None):
        pass

    def record(self, loss, num_known):
        super().update_state(loss, sample_weight=num_known)


class _Scorer(keras.Model):
    """The inference path of a classifier as a model of its own.

    Gives `predict_on_batch` compiled by every backend, with the logits, which
    the classifier itself does not return.
    """

    def __init__(self, classifier, with_score, with_features, single_view):
        super().__init__(name="scorer", dtype="float32")
        self.classifier = classifier
        self._wanted = {
            "with_score": with_score,
            "with_features": with_features,
            "single_view": single_view,
        }
        self.built = True

    def call(self, images):
        return self.classifier.score_outputs(images, **self._wanted)


@keras.saving.register_keras_serializable(package="CacTf")
class OpenSetClassifier(keras.Model):
    """Any Keras model that ends in logits, made able to reject the unknown.

    Calling it gives (B, N) distances to the class centres, float32, in
    training and inference alike; compile it with `CACLoss`. After `fit`:

    * `fit_centres` replaces the anchors by class means (section 3.3),
    * `calibrate` sets the threshold theta,
    * `predict_open_set` gives decisions; `save` and `export` keep them.

    `fit` starts from anchors and, like `fit_centres`, makes an earlier theta
    invalid. `metrics=["accuracy"]` means nearest-centre accuracy.

    Validation data may carry unknown inputs with the label -1: they have no
    part in loss and accuracy, and `metrics.OpenSetAUROC` uses them.

    Args:
        backbone: Keras model or layer, (B, ...) -> (B, N) logits. A model
            that ends in a softmax or another bounded activation is refused.
        class_names: N >= 2 different texts; saved with the model.
        magnitude: length of the anchors (the paper's alpha).
        preprocessing: layer from raw inputs to what the backbone takes,
            `ImagePreprocessing` for images; part of the saved model.
        augmentation: layer applied in training only. It stands between the
            two halves of `ImagePreprocessing`, on images in [0, 1]; after
            any other preprocessing.
        score: which rule gives the unknown score: a name of
            `scores.names()`, e.g. "gamma", the smallest rejection score
            (equation 9), or a `scores.Score`.
        features_layer: name of the backbone's layer whose output a score of
            features reads. None: what goes into its last dense layer.
        views: None, or "flip": outside of training, logits and features are
            means over an image and its mirror image, at twice the cost. Not
            for images whose class changes when they are mirrored, as that of
            digits and letters does.
        **kwargs: of `keras.Model`.

    Raises:
        ValueError: fewer than two classes, duplicate or reserved names, a
            backbone with another number of outputs or a bounded activation,
            an unknown score, other views; when built: features that a score
            needs and that are not found (the message names the layers there
            are), views of inputs that are no images.

    Example:

    >>> import keras, numpy as np, cac_tf
    >>> x = np.float32([[0, 1], [1, 0]] * 32)
    >>> y = np.array([0, 1] * 32)
    >>> backbone = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(backbone, ["left", "right"])
    >>> model.compile(keras.optimizers.SGD(0.1), cac_tf.losses.CACLoss())
    >>> history = model.fit(x, y, epochs=40, verbose=0)
    >>> counts = model.fit_centres(x, y)
    >>> theta = model.calibrate(x, true_positive_rate=0.9)
    >>> prediction = model.predict_open_set(np.float32([[0, 1], [9, 9]]))
    >>> [str(name) for name in prediction.label]
    ['left', 'unknown']
    """

    def __init__(
        self,
        backbone,
        class_names,
        magnitude=10.0,
        preprocessing=None,
        augmentation=None,
        score="gamma",
        features_layer=None,
        views=None,
        **kwargs,
    ):
        # Not the global policy: it would cast raw pixels to half precision.
        kwargs["dtype"] = kwargs.get("dtype") or "float32"
        class_names = check_class_names(class_names, reserved=UNKNOWN_NAME)
        check_backbone(backbone, len(class_names))
        score = score_rules.get(score)
        if views not in VIEWS:
            raise ValueError(f'views must be None or "flip"; got {views!r}.')
        super().__init__(**kwargs)
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.score = score
        self.features_layer = features_layer
        self.views = views
        self.class_names = tuple(class_names)
        self.distance_head = AnchoredDistance(
            len(class_names), magnitude, name="distance_head"
        )
        self.rejection_score = RejectionScore(name="rejection_score")
        self.decision = OpenSetDecision(name="decision")
        self._loss_from_logits = None

    # ---- forward pass -----------------------------------------------------

    def build(self, input_shape):
        if self.built:
            return
        self._input_shape = tuple(input_shape)
        shape = input_shape
        if self.preprocessing is not None:
            shape = _build(self.preprocessing, shape)
        if self.augmentation is not None:
            shape = _build(self.augmentation, shape)
        if self.views is not None and len(shape) != 4:
            raise ValueError(
                f'views="flip" is for images, (batch, height, width, '
                f"channels); the backbone takes {tuple(shape)}."
            )
        shape = _build(self.backbone, shape)
        self.distance_head.build(shape)
        self.rejection_score.build(shape)
        if self.features_layer is not None or self.score.reads_features:
            self._features()  # Not to be found out after the training.
        self.built = True

    def logits(self, inputs, training=False):
        """Logits of raw inputs, (B, ...) -> (B, N).

        Outside of training, with `views="flip"`, the mean of those of the
        images and of their mirror images.
        """
        return self._of_views(inputs, training, self.backbone)

    def _of_views(self, inputs, training, network, single_view=False):
        """What a network gives for raw inputs, or the mean of its views."""
        x = self._network_inputs(inputs, training)
        outputs = network(x, training=training)
        if training or single_view or self.views is None:
            return outputs
        mirrored = network(ops.flip(x, axis=2), training=training)
        return keras.tree.map_structure(
            lambda one, other: (
                (ops.cast(one, "float32") + ops.cast(other, "float32")) / 2.0
            ),
            outputs,
            mirrored,
        )

    def _network_inputs(self, inputs, training):
        x = inputs
        has_two_halves = hasattr(self.preprocessing, "to_unit_range")
        if has_two_halves:
            x = self.preprocessing.to_unit_range(x)
        elif self.preprocessing is not None:
            x = self.preprocessing(x)
        if self.augmentation is not None:
            x = self.augmentation(x, training=training)
        if has_two_halves:
            x = self.preprocessing.normalise(x)
        return x

    def call(self, inputs, training=False):
        logits = self.logits(inputs, training=training)
        distances = self.distance_head(logits)
        if training and self._loss_from_logits is not None:
            _training_step.remember(logits, distances)
        return distances

    def score_outputs(
        self,
        inputs,
        distance_formula=None,
        *,
        with_score=True,
        with_features=False,
        single_view=False,
    ):
        """The tensors behind `OpenSetScores`, as a dict.

        Args:
            inputs: (B, ...) raw inputs.
            distance_formula: in place of the distance head.
            with_score: whether `unknown_score` and `nearest_class_id` are
                among them.
            with_features: whether `features`, (B, D), are among them; where
                the score needs them, they are.
            single_view: whether images are taken as they are, whatever
                `views` says.

        Raises:
            ValueError: features are wanted and cannot be found.
        """
        outputs = {}
        if with_features or (with_score and self.score.reads_features):
            both, _ = self._features()
            features, logits = self._of_views(inputs, False, both, single_view)
            outputs["features"] = flat(features)
        else:
            logits = self._of_views(inputs, False, self.backbone, single_view)
        logits = ops.cast(logits, "float32")
        distances = (distance_formula or self.distance_head)(logits)
        outputs["logits"], outputs["distances"] = logits, distances
        outputs["gamma"] = self.rejection_score(distances)
        if with_score:
            values = self.score.arguments_of(outputs)
            outputs["unknown_score"] = self.score(*values)
            outputs["nearest_class_id"] = self.score.nearest_class(outputs)
        return outputs

    def _features(self):
        """Backbone with features beside logits, and its last dense layer."""
        found = self.__dict__.get("_with_features")
        if found is None:
            found = with_features(self.backbone, self.features_layer)
            # Past Keras' tracking: the layers are the backbone's.
            object.__setattr__(self, "_with_features", found)
        return found

    @property
    def has_features(self):
        """Whether scores that need features can be used with this model."""
        try:
            self._features()
        except ValueError:
            return False
        return True

    # ---- training ---------------------------------------------------------

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        metrics=None,
        weighted_metrics=None,
        auto_scale_loss=True,
        **kwargs,
    ):
        optimizer = keras.optimizers.get(optimizer)
        if (
            auto_scale_loss
            and uses_float16(self.backbone)
            and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        ):
            # Keras looks at the policy of the outermost model only.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        super().compile(
            optimizer=optimizer,
            loss=loss,
            metrics=_with_nearest_centre_accuracy(metrics),
            weighted_metrics=_with_nearest_centre_accuracy(weighted_metrics),
            **kwargs,
        )
        # Past Keras' tracking of attributes, as its own tracker is.
        object.__setattr__(self, "_loss_tracker", _MeanLossOverKnown())
        has_one_step = type(loss) is CACLoss and not kwargs.get("loss_weights")
        self._loss_from_logits = (
            _CACLossFromLogits(self.distance_head, loss)
            if has_one_step
            else None
        )

    def compile_from_config(self, config):
        # Keras does not compile a loaded model whose compile() is overridden.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        is_known = ops.not_equal(ops.reshape(y, (-1,)), UNKNOWN)
        if not training:
            y = ops.where(
                ops.reshape(is_known, ops.shape(y)), y, ops.zeros_like(y)
            )
            reduction = getattr(self.loss, "reduction", "sum_over_batch_size")
            sample_weight = weights_of_counted(
                is_known, sample_weight, reduction
            )
        logits = _training_step.logits_behind(y_pred)
        if training and logits is not None:
            loss = self._loss_from_logits(y, (logits, y_pred), sample_weight)
            for regularisation in self.losses:
                loss += self._aggregate_additional_loss(regularisation)
        else:
            loss = super().compute_loss(
                x=x,
                y=y,
                y_pred=y_pred,
                sample_weight=sample_weight,
                training=training,
            )
        self._loss_tracker.record(
            _unscaled(loss), ops.sum(ops.cast(is_known, "float32"))
        )
        return loss

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        **kwargs,
    ):
        """Trains as `keras.Model.fit` does, from anchors as centres.

        Labels and images are checked first: arrays as a whole, data sets
        batch by batch. Theta becomes invalid.

        Raises:
            ValueError: a label that is no whole number in 0...N-1 (in
                validation data -1 is allowed too), one-hot labels, a class
                without an example, an image with NaN or infinity.
            FloatingPointError: the loss became NaN or infinite.
        """
        if isinstance(y, list):
            y = np.asarray(y)
        x, counts = self._checked_input(x, y, is_training=True)
        if isinstance(validation_data, (tuple, list)):
            self._checked_input(*validation_data[:2], is_training=False)
        elif validation_data is not None:
            validation_data, _ = self._checked_input(
                validation_data, None, is_training=False
            )
        if callbacks is None:
            callbacks = []
        stop = _StopOnNonFiniteLoss(inputs_are_checked=counts is not None)
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(stop)
        else:
            callbacks = [*_as_list(callbacks), stop]
        self._start_from_anchors()
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
        if counts is not None and counts.any() and not counts.all():
            # Of a data set this is known only now.
            absent = input_checks.absent_classes(counts, self.class_names)
            warnings.warn(
                f"These classes had no training example: {absent}.",
                stacklevel=2,
            )
        return history

    def train_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        if y is None:
            raise ValueError("Training needs labels: pass y.")
        input_checks.check_labels(y, len(self.class_names))
        input_checks.check_finite(x, "Images")
        self._start_from_anchors()
        return super().train_on_batch(
            x, y, sample_weight=sample_weight, **kwargs
        )

    def _start_from_anchors(self):
        if self.built and not self.distance_head.has_anchors:
            self.distance_head.assign_anchors()
        self.decision.threshold = None
        self.score.reset()

    def _checked_input(self, x, y, is_training):
        """The data to train on, and label counts (None: not checked)."""
        if input_checks.is_array(x):
            if y is None:
                raise ValueError("Training on arrays needs labels: pass y.")
            labels = input_checks.check_labels(
                y, len(self.class_names), allow_unknown=not is_training
            )
            known = labels[labels != UNKNOWN]
            counts = np.bincount(known, minlength=len(self.class_names))
            absent = input_checks.absent_classes(counts, self.class_names)
            if is_training and absent:
                raise ValueError(
                    f"These classes have no training example: {absent}. "
                    "Every known class needs at least one."
                )
            input_checks.check_finite(x, "Images")
            if self.built:
                self._check_shape(x)
            return x, counts
        return input_checks.checked_batches(
            x, len(self.class_names), allow_unknown=not is_training
        )

    # ---- after training ---------------------------------------------------

    def predict_scores(self, x, batch_size=128):
        """Distances and scores of inputs; needs no threshold.

        Args:
            x: array of inputs, or a data set of batches of inputs or
                (inputs, labels).
            batch_size: for arrays.

        Returns:
            `OpenSetScores`, arrays in the order of the inputs.

        Raises:
            ValueError: no inputs, or one with NaN or infinity, or whose
                logits or distances are not finite (the message names its
                position); a score that is not fitted.
        """
        self.require_fitted_score()
        parts = [
            OpenSetScores(*(outputs[n] for n in OpenSetScores._fields))
            for outputs, *_ in self.iterate_outputs(x, None, batch_size)
        ]
        if not parts:
            raise ValueError("There are no inputs to score.")
        return OpenSetScores(*map(np.concatenate, zip(*parts, strict=True)))

    def iterate_outputs(
        self,
        x,
        y=None,
        batch_size=128,
        *,
        with_score=True,
        with_features=False,
        single_view=False,
    ):
        """What the model says of inputs, batch by batch.

        Args:
            x: array of inputs, or a data set of batches of inputs or
                (inputs, labels).
            y: labels for an array.
            batch_size: for arrays.
            with_score: whether the model's score is computed as well.
            with_features: whether the features are among the outputs.
            single_view: as of `score_outputs`.

        Yields:
            Outputs as in `score_outputs`, a dict of NumPy arrays; labels or
            None; the inputs; and where the batch is, for messages.

        Raises:
            ValueError: as `predict_scores`.
        """
        scorers = self.__dict__.setdefault("_scorers", {})
        # What makes no difference is no kind of its own to compile.
        single_view = single_view and self.views is not None
        # A score that is fitted anew may have other variables.
        layout = self.score.layout if with_score else None
        kind = (with_score, with_features, single_view, layout)
        if kind not in scorers:
            scorers[kind] = _Scorer(
                self, with_score, with_features, single_view
            )
        start = 0
        batches = input_checks.iterate_batches(x, y, batch_size)
        for images, labels, where in batches:
            if len(images) == 0:
                continue
            place = where or (f"batch starting at {start}, " if start else "")
            input_checks.check_finite(images, "Inputs", place)
            if not self.built:
                self.build(images.shape)
            self._check_shape(images)
            outputs = {
                name: np.asarray(value)
                for name, value in scorers[kind]
                .predict_on_batch(images)
                .items()
            }
            input_checks.check_finite(outputs["logits"], "Logits", place)
            # Squares of finite logits may overflow.
            input_checks.check_finite(outputs["distances"], "Distances", place)
            for name, what in _CHECKED_WHERE_PRESENT.items():
                if name in outputs:
                    input_checks.check_finite(outputs[name], what, place)
            start += len(images)
            yield outputs, labels, images, place

    def _check_shape(self, images):
        """Sizes may differ, where preprocessing resizes; channels may not."""
        expected = self.raw_input_shape
        shape = images.shape[1:]
        if len(shape) != len(expected) or shape[-1] != expected[-1]:
            raise ValueError(
                f"The model takes inputs of shape {tuple(expected)}; got "
                f"{tuple(shape)}."
            )

    def fit_centres(self, x, y=None, batch_size=128, with_score=True):
        """Replaces the anchors by class means of the logits (section 3.3).

        Means are taken over the training examples that are classified
        correctly *relative to the anchors*, so calling it twice changes
        nothing. A score that learns from known data is fitted in the same
        pass. Memory does not grow with the data, but for what the score says
        that it keeps. A class without a correct example keeps its anchor, and
        a warning names it. Theta becomes invalid.

        Args:
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays.
            with_score: whether a score that learns from known data is fitted
                too.

        Returns:
            (N,) int64 numbers of examples that each mean was taken over.

        Raises:
            ValueError: no data or labels, invalid labels or inputs, logits
                that are not finite or are probabilities, or too few examples
                for the score. The model stays as it was.
        """
        num_classes = len(self.class_names)
        means = ClassMoments(num_classes)
        total = np.zeros(num_classes, "int64")

        def take(batch):
            nonlocal total
            right = batch.is_correct
            means.add(batch.logits[right], batch.labels[right])
            total += np.bincount(batch.labels, minlength=num_classes)

        problems = self._fit_in_one_pass(
            "fit_centres",
            [self.score] if with_score else [],
            x,
            y,
            batch_size,
            take,
        )
        if problems:
            raise problems[self.score.name]
        anchors = self.distance_head.magnitude * np.eye(num_classes)
        self.distance_head.assign_class_means(
            np.where(means.counts[:, None] > 0, means.means, anchors)
        )
        self.decision.threshold = None
        for index in np.flatnonzero(means.counts == 0):
            reason = (
                f"none of its {total[index]} examples is classified correctly"
                if total[index]
                else "it has no example"
            )
            warnings.warn(
                f"Class {self.class_names[index]!r} keeps its anchor as "
                f"centre: {reason}.",
                stacklevel=2,
            )
        return means.counts

    def fit_score(self, x, y=None, batch_size=128):
        """Fits the score to known data, if it learns from them.

        `fit_centres` does so with the training data; this does it with
        others, such as those of `scores.ClassZScore`, which are better not
        trained on, and leaves the centres alone. Theta becomes invalid.

        Args:
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays.

        Raises:
            ValueError: no data or labels, invalid labels or inputs, or too
                few of them for the score.
        """
        if self.score.IS_FITTED_TO_DATA:
            problems = self._fit_in_one_pass(
                "fit_score", [self.score], x, y, batch_size
            )
            if problems:
                raise problems[self.score.name]

    def fit_scores(self, scores, x, y=None, batch_size=128):
        """Fits any scores to what this model says of known data, in one pass.

        Args:
            scores: list of `scores.Score`; those that learn from data are
                fitted.
            x: array of inputs, or a data set of (inputs, labels) batches.
            y: labels for an array.
            batch_size: for arrays.

        Returns:
            Dict of the scores that these data are not enough for: the
            ValueError by the name. The others are fitted.

        Raises:
            ValueError: no data or labels, or invalid ones.
        """
        return self._fit_in_one_pass("fit_scores", scores, x, y, batch_size)

    def _fit_in_one_pass(self, what, scores, x, y, batch_size, take=None):
        num_classes = len(self.class_names)
        fitting = Fitting(scores, num_classes)
        if fitting.problems and not fitting:
            return fitting.problems
        needs_features = fitting.needs_features
        are_probabilities = None
        batches = self.iterate_outputs(
            x,
            y,
            batch_size,
            with_score=False,
            with_features=needs_features,
            # Images as they are: what the mean of two views is compared with.
            single_view=True,
        )
        for outputs, labels, images, place in batches:
            if labels is None:
                raise ValueError(f"{what} needs labels: pass y.")
            batch = score_rules.KnownBatch(
                input_checks.check_labels(labels, num_classes, where=place),
                score_rules.keys_of(images) if fitting else None,
                **outputs,
            )
            fitting.add(batch)
            if take is not None:
                take(batch)
            if are_probabilities is not False:
                are_probabilities = _are_probabilities(batch.logits)
        if are_probabilities is None:
            raise ValueError(f"{what} needs at least one example.")
        if are_probabilities:
            raise ValueError(
                "The backbone gives probabilities (its outputs are not "
                "negative and add up to 1), not logits: take the softmax at "
                "its end away."
            )
        _, last = self._features() if needs_features else (None, None)
        fitting.finish(score_rules.Known(self.class_names, last_layer_of(last)))
        is_refitted = self.score in scores and self.score.IS_FITTED_TO_DATA
        if is_refitted and self.score.name not in fitting.problems:
            self.decision.threshold = None
        return fitting.problems

    def calibrate(
        self,
        known=None,
        *,
        true_positive_rate=None,
        unknown=None,
        false_positive_rate=None,
        batch_size=128,
    ):
        """Sets theta from data that was not trained on.

        Args:
            known: known inputs (array, (inputs, labels), or data set of
                batches); for `true_positive_rate`. Rows labelled -1 are left
                out.
            true_positive_rate: wanted share of known inputs that are kept.
            unknown: unknown inputs, whatever their labels; for
                `false_positive_rate`.
            false_positive_rate: largest share of unknown inputs to keep.
            batch_size: for arrays.

        Returns:
            Theta. An input is kept if its unknown score is <= theta.

        Raises:
            ValueError: not exactly one rate, a rate outside (0, 1), or no
                example of the kind that the rate needs.
        """
        if (true_positive_rate is None) == (false_positive_rate is None):
            raise ValueError(
                "Give exactly one of true_positive_rate (kept known inputs) "
                "and false_positive_rate (kept unknown inputs)."
            )
        if true_positive_rate is not None:
            theta = calibration.threshold_for_true_positive_rate(
                self._unknown_scores(known, batch_size, known_only=True),
                true_positive_rate,
            )
        else:
            theta = calibration.threshold_for_false_positive_rate(
                self._unknown_scores(unknown, batch_size, known_only=False),
                false_positive_rate,
            )
        self.decision.threshold = theta
        return theta

    def require_fitted_score(self):
        """Raises ValueError while the score lacks statistics."""
        if not self.score.is_fitted:
            raise ValueError(
                f"The score {self.score.name!r} has no statistics yet: call "
                "fit_centres(x_train, y_train), or fit_score, first. (fit "
                "makes earlier ones invalid.)"
            )

    def _unknown_scores(self, data, batch_size, known_only):
        if data is None:
            return []
        self.require_fitted_score()
        parts = [np.empty(0, "float32")]
        for outputs, labels, *_ in self.iterate_outputs(data, None, batch_size):
            is_wanted = np.ones(len(outputs["unknown_score"]), bool)
            if known_only and labels is not None:
                is_wanted = labels.reshape(-1) != UNKNOWN
            parts.append(outputs["unknown_score"][is_wanted])
        return np.concatenate(parts)

    @property
    def threshold(self):
        """Theta, or None while the model has no valid one."""
        return self.decision.threshold

    @property
    def raw_input_shape(self):
        """Shape of one raw input, e.g. (height, width, channels)."""
        if not self.built:
            raise ValueError("The model is not built yet: fit or call it.")
        return self._input_shape[1:]

    @property
    def centres(self):
        """(N, N) float32 array: the class centres in force."""
        if not self.built:
            raise ValueError("The model is not built yet: fit or call it.")
        return ops.convert_to_numpy(self.distance_head.centres)

    def require_threshold(self):
        """Theta; raises ValueError while the model has no valid one."""
        if self.threshold is None:
            raise ValueError(
                "The model has no valid threshold theta, so it cannot decide "
                "between known and unknown: call calibrate() first. (fit and "
                "fit_centres make an earlier theta invalid; predict_scores "
                "works without one.)"
            )
        return self.threshold

    def predict_open_set(self, x, batch_size=128):
        """Classes of inputs, or "unknown" (equation 9).

        Args:
            x: array of raw inputs, or a data set of batches.
            batch_size: for arrays.

        Returns:
            `OpenSetPrediction`, arrays in the order of the inputs.

        Raises:
            ValueError: no valid theta; no inputs; an input that holds NaN or
                infinity or whose logits are not finite, with its position.
        """
        self.require_threshold()
        scores = self.predict_scores(x, batch_size)
        is_kept = scores.unknown_score <= np.float32(self.threshold)
        class_id = np.where(is_kept, scores.nearest_class_id, UNKNOWN)
        # UNKNOWN is -1: the last name.
        names = np.array([*self.class_names, UNKNOWN_NAME])
        return OpenSetPrediction(
            class_id=class_id.astype("int32"),
            label=names[class_id],
            is_unknown=class_id == UNKNOWN,
            unknown_score=scores.unknown_score,
            nearest_class_id=scores.nearest_class_id,
            gamma=scores.gamma,
            distances=scores.distances,
        )

    def with_score(self, score, views="same"):
        """The same classifier with another score, without a threshold.

        The score is copied, with what it has learnt. Backbone, preprocessing
        and augmentation are shared with this model, not copied: training one
        trains both.

        Args:
            score: a name of `scores.names()`, or a `scores.Score`.
            views: as of the class; "same": as this one.

        Returns:
            `OpenSetClassifier`, not compiled; logits and centres are those of
            this one.
        """
        score = score_rules.get(score).copy()
        other = type(self)(
            self.backbone,
            self.class_names,
            magnitude=self.distance_head.magnitude,
            preprocessing=self.preprocessing,
            augmentation=self.augmentation,
            score=score,
            features_layer=self.features_layer,
            views=self.views if views == "same" else views,
        )
        other.build((None, *self.raw_input_shape))
        other.distance_head.set_weights(self.distance_head.get_weights())
        return other

    @classmethod
    def from_classifier(
        cls,
        classifier,
        class_names,
        score="energy",
        *,
        features_layer=None,
        views=None,
        preprocessing=None,
    ):
        """Makes a trained Keras classifier able to reject the unknown.

        Nothing is trained. A softmax at the classifier's end is taken away;
        all other layers are shared with it, not copied. `fit_centres` with
        its training data fits class means of the logits and the score, and
        `calibrate` sets theta; then it predicts, saves and exports as any
        `OpenSetClassifier` does.

        Args:
            classifier: trained Keras model that ends in N logits or in a
                softmax over them.
            class_names: N different texts, in the order of its outputs.
            score: as of the class. "gamma" and "min_distance" are distances
                to the class means of the logits, which training by
                cross-entropy does not pull together.
            features_layer: as of the class.
            views: as of the class.
            preprocessing: layer from raw inputs to what the classifier takes.

        Returns:
            `OpenSetClassifier`, not compiled.

        Raises:
            ValueError: as of the class; a classifier that ends in sigmoids or
                is not built.

        Example:

        >>> import keras, numpy as np, cac_tf
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> x = np.float32(3 * np.eye(2, 4)[y] + rng.normal(size=(200, 4)))
        >>> inputs = keras.Input([4])
        >>> hidden = keras.layers.Dense(8, activation="relu")(inputs)
        >>> outputs = keras.layers.Dense(2, activation="softmax")(hidden)
        >>> trained = keras.Model(inputs, outputs)
        >>> model = cac_tf.OpenSetClassifier.from_classifier(
        ...     trained, ["left", "right"], score="deep_nearest_neighbours")
        >>> counts = model.fit_centres(x, y)
        >>> theta = model.calibrate(x, true_positive_rate=0.95)
        >>> bool(np.mean(model.predict_open_set(x).is_unknown) <= 0.05)
        True
        """
        if len(getattr(classifier, "inputs", None) or [None]) != 1:
            raise ValueError(
                f"The classifier takes {len(classifier.inputs)} inputs; an "
                "OpenSetClassifier takes one."
            )
        model = cls(
            without_softmax(classifier),
            class_names,
            preprocessing=preprocessing,
            score=score,
            features_layer=features_layer,
            views=views,
        )
        # (A subclassed model does not know it: the first data say.)
        shape = getattr(classifier, "input_shape", None)
        if preprocessing is None and shape is not None:
            model.build(tuple(shape))
        return model

    # ---- keeping ----------------------------------------------------------

    def save(self, filepath, overwrite=True, **kwargs):
        """Saves the whole model: weights, centres, theta, names, statistics.

        Written under a temporary name and then renamed, so a full disk or a
        kill leaves an earlier file as it was.
        """
        filepath = os.fspath(filepath)
        if not filepath.endswith(".keras"):
            return super().save(filepath, overwrite=overwrite, **kwargs)
        if os.path.exists(filepath) and not overwrite:
            raise FileExistsError(f"{filepath} exists; pass overwrite=True.")
        with atomic_files.replacing(filepath) as temporary:
            super().save(temporary, overwrite=True, **kwargs)

    def export(self, filepath, format="tf_saved_model", verbose=None):
        """Writes a SavedModel with the rejection rule built in.

        Its signatures are `serving_default` (float32 images, or other raw
        inputs), `uint8_images`, `encoded_images` (JPEG, PNG or WebP files),
        `with_threshold` (one threshold a row) and `classify`; see
        `export.write_model_folder`, which makes a whole folder for TF
        Serving. An answer has, for each row, `class_id` (-1: unknown),
        `label`, `is_unknown`, `unknown_score`, `nearest_class_id`, `gamma`,
        `distances`, `probabilities`, `threshold`, `model_version` (here 0)
        and `is_valid`. The graph holds stock TensorFlow operations only.

        Args:
            filepath: folder to write: made under a temporary name and then
                renamed, so it is never half there.
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
        if format != "tf_saved_model":
            raise ValueError(
                f'format must be "tf_saved_model"; got {format!r}. '
                "export.write_litert and export.write_onnx write others."
            )
        write_saved_model(self, filepath, verbose=bool(verbose))

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "backbone": serialize(self.backbone),
            "class_names": list(self.class_names),
            "magnitude": self.distance_head.magnitude,
            "preprocessing": serialize(self.preprocessing),
            "augmentation": serialize(self.augmentation),
            "score": serialize(self.score),
            "features_layer": self.features_layer,
            "views": self.views,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        for key in ("backbone", "preprocessing", "augmentation", "score"):
            config[key] = keras.saving.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )
        return cls(**config)

    def get_build_config(self):
        return {"input_shape": self._input_shape} if self.built else None


def load_model(path):
    """Loads an `OpenSetClassifier` from the file that `save` wrote.

    Args:
        path: a `.keras` file.

    Returns:
        The model: weights, centres, theta, class names, normalisation.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no `OpenSetClassifier`.

    Example:

    >>> import os, tempfile, keras, cac_tf
    >>> backbone = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    >>> model = cac_tf.OpenSetClassifier(backbone, ["left", "right"])
    >>> model.build((None, 4))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> cac_tf.load_model(path).class_names
    ('left', 'right')
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no model file {path}.")
    model = keras.saving.load_model(path)
    if not isinstance(model, OpenSetClassifier):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not an OpenSetClassifier."
        )
    return model


def _build(layer, shape):
    """Builds `layer` and gives the shape of its output.

    By a symbolic call: subclassed models have neither a `build` nor a
    `compute_output_shape` of their own.
    """
    return tuple(layer(keras.Input(batch_shape=(None, *shape[1:]))).shape)


def _with_nearest_centre_accuracy(metrics):
    """Keras' own "accuracy" would look for the largest distance."""
    if isinstance(metrics, dict):
        return {k: _with_nearest_centre_accuracy(m) for k, m in metrics.items()}
    if isinstance(metrics, (list, tuple)):
        return [_with_nearest_centre_accuracy(metric) for metric in metrics]
    if isinstance(metrics, str) and metrics in ("accuracy", "acc"):
        return NearestCentreAccuracy(name=metrics)
    return metrics


def _are_probabilities(logits):
    """Whether every row is not negative and adds up to 1."""
    sums = logits.sum(axis=-1)
    return bool((logits >= 0).all() and np.allclose(sums, 1.0, atol=1e-3))


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _unscaled(loss):
    """Undoes the division by the number of replicas under tf.distribute."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return loss * tf.distribute.get_strategy().num_replicas_in_sync
    return loss
