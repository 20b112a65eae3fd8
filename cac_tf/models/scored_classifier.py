# SPDX-License-Identifier: Apache-2.0
"""A classifier with class centers and one score: all but the threshold."""

import types
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from cac_tf import scores as score_rules
from cac_tf.annotations import Outputs
from cac_tf.annotations import Shape
from cac_tf.annotations import Tensor
from cac_tf.hyperparameters import MAGNITUDE
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.layers import anchored_distance
from cac_tf.layers.precision import full_precision
from cac_tf.layers.rejection_score import rejection_scores
from cac_tf.models import input_checks
from cac_tf.models import making
from cac_tf.models import prediction
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.copying import fingerprint
from cac_tf.models.network import Network
from cac_tf.models.raw_inputs import InputKind
from cac_tf.scores import Score
from cac_tf.scores.score import OF_CENTERS
from cac_tf.scores.score import Context


class ScoredClassifier(keras.Model):
    """Base of `OpenSetClassifier`: from raw inputs to unknown scores.

    All weights are made in the constructor, with their final shapes.

    Args:
        classifier, class_names, score, centers, statistics, features_layer,
            tta, input_shape, is_shared: as for `OpenSetClassifier`.
        **kwargs: passed to `keras.Model`.
    """

    def __init__(
        self,
        classifier: keras.Model,
        class_names: Sequence[str],
        score: str | Score = "gamma",
        *,
        centers: float | ArrayLike = MAGNITUDE,
        statistics: Mapping[str, ArrayLike] | None = None,
        features_layer: str | None = None,
        tta: str | None = None,
        input_shape: Shape | None = None,
        is_shared: bool = False,
        **kwargs: Any,
    ) -> None:
        # Not the global policy: it would cast raw pixels to half precision.
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
        self._make_statistics(statistics or {})
        self._fingerprint = fingerprint(classifier) if is_shared else None
        if not is_shared:
            self.trainable = False
        # In a namespace, which Keras neither tracks nor saves.
        self._own = types.SimpleNamespace(
            predictor=prediction.Predictor(
                self, self.inputs_taken, ("logits", *OF_CENTERS)
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
                    f"{shape[1]} dimensions: pass the centers of the classes."
                )
        elif np.shape(centers) != shape:
            raise ValueError(
                f"centers must have shape {shape}; got {np.shape(centers)}."
            )
        else:
            self.class_centers = self._weight("class_centers", centers)

    def _make_statistics(self, statistics):
        self.score.require_statistics(statistics)
        # In one order, because Keras' files know weights by their place.
        self._names_of_statistics = tuple(sorted(statistics))
        for name in self._names_of_statistics:
            # Each an attribute of its own: TensorFlow's checkpoints do not
            # hold weights that are kept in a dict.
            weight = self._weight(f"score_{name}", statistics[name])
            setattr(self, f"statistic_{name}", weight)

    def _weight(self, name, values):
        """A weight; of a `KerasTensor` the shape alone is known: it is NaN."""
        if isinstance(values, keras.KerasTensor):
            initializer = keras.initializers.Constant(np.nan)
        elif not np.isfinite(values).all():
            raise ValueError(
                f"{name} must be finite; it contains NaN or infinity."
            )
        else:
            # (Large statistics are written once.)
            def initializer(shape, dtype):
                return ops.convert_to_tensor(
                    np.asarray(values, "float32"), dtype
                )

        return self.add_weight(
            name=name,
            shape=np.shape(values),
            initializer=initializer,
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
            "The score of a model cannot be changed, because its threshold "
            "is for that score. Make a new model with another score: "
            'model.with_score("knn", (x, y)).'
        )

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """The statistics of the score, float32 arrays by name."""
        # (Copies: JAX gives the memory of weights away in `predict`.)
        return {
            name: np.array(ops.convert_to_numpy(value))
            for name, value in self._statistics().items()
        }

    def _statistics(self):
        return {
            name: ops.convert_to_tensor(getattr(self, f"statistic_{name}"))
            for name in self._names_of_statistics
        }

    @property
    def centers(self) -> np.ndarray:
        """(N, D) float32 array: the class centers."""
        if self.class_centers is not None:
            return np.array(ops.convert_to_numpy(self.class_centers))
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

    @property
    def is_shared(self) -> bool:
        """Whether somebody may train the classifier on."""
        return self._fingerprint is not None

    def require_same_classifier(self) -> None:
        """Raises RuntimeError if a shared classifier was trained on."""
        if self.is_shared and fingerprint(self.classifier) != self._fingerprint:
            raise RuntimeError(
                "The classifier's weights have changed since this model was "
                "made, so its centers, statistics and threshold no longer "
                "match: create the model again with from_classifier."
            )

    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """As in Keras; a shared classifier is then the one that was loaded."""
        super().load_weights(*args, **kwargs)
        if self.is_shared:
            self._fingerprint = fingerprint(self.classifier)

    @property
    def names_of_outputs(self) -> tuple[str, ...]:
        """Those of the network, and those that depend on the centers."""
        return (*self.network.names_of_outputs, *OF_CENTERS)

    def require_outputs_for(self, score: Score) -> None:
        """Raises ValueError unless there is all that a score reads."""
        making.require_outputs_for(score, self.network, len(self.class_names))

    # ---- from outputs of the network to scores ----------------------------

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
        values = self.score.arguments_of(outputs)
        statistics = self._statistics()
        outputs["unknown_score"] = self.score(*values, **statistics)
        outputs["predicted_class_id"] = self.score.predicted_class(
            outputs, **statistics
        )
        return outputs

    def completed(self, outputs: Outputs) -> Outputs:
        """Outputs of the network that exist already, as those of a call."""
        return self.with_decision(outputs)

    def outputs_of(
        self, inputs: Tensor, names: Iterable[str], *, single_view: bool = False
    ) -> dict[str, Tensor]:
        """Some of the outputs of a call but `class_id`, as tensors by name.

        Args:
            inputs: (B, ...) raw inputs.
            names: names of outputs.
            single_view: whether to take the images as they are, ignoring
                `tta`.
        """
        outputs = self.with_decision(self.network.call(inputs, single_view))
        return {name: outputs[name] for name in names}

    # ---- for data ---------------------------------------------------------

    def iterate_outputs(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        *,
        names: Iterable[str],
        single_view: bool = False,
    ) -> Iterator[Any]:
        """The outputs of the model for data, batch by batch.

        Args:
            x, y, batch_size: as of `OpenSetClassifier`.
            names, single_view: as in `outputs_of`.

        Yields:
            Outputs, a dict of NumPy arrays; labels or None; the inputs; and
            the position of the batch, for messages.

        Raises:
            ValueError: see `predict_scores`.
            RuntimeError: a shared classifier was trained on.
        """
        self.require_same_classifier()
        return self._own.predictor.batches(
            x, y, batch_size, tuple(names), single_view
        )

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> dict[str, np.ndarray]:
        """As in Keras: the dict of a call, for all inputs."""
        self.require_same_classifier()
        if steps is None:
            input_checks.require_end(x)
        return super().predict(x, batch_size, verbose, steps, callbacks)

    def predict_scores(
        self, x: Any, batch_size: int | None = None
    ) -> prediction.OpenSetScores:
        """Computes distances and scores of inputs; needs no threshold.

        Args:
            x, batch_size: as of `OpenSetClassifier`.

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
            data, y, batch_size: as of `from_classifier`.

        Returns:
            Dict from the name of each score to its statistics; and dict from
            the name of each score that cannot be fitted to its ValueError.

        Raises:
            ValueError: no data or labels, or invalid ones.
        """
        self.require_same_classifier()
        found = making.learn(
            self._own.predictor,
            (data, y),
            Context(self.class_names, self.network.last_layer),
            scores,
            batch_size,
        )
        return found.statistics, found.problems
