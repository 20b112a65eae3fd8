# SPDX-License-Identifier: Apache-2.0
"""A scikit-learn classifier that can answer "unknown"."""

import contextlib
import numbers
import random
from collections.abc import Callable
from typing import Any
from typing import Self

import keras
import numpy as np
import scipy.special
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length
from sklearn.utils.validation import check_is_fitted
from sklearn.utils.validation import column_or_1d
from sklearn.utils.validation import validate_data

from cac_tf import losses
from cac_tf import models
from cac_tf import scores as score_rules
from cac_tf.labels import UNKNOWN
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models.backbone_checks import check_class_names

_WIDTH = 64
_LARGEST_SEED = 2**32 - 1


def dense_network(input_shape, num_classes):
    """The network of an `OpenSetClassifier` that is given none.

    Args:
        input_shape: shape of one input.
        num_classes: N.

    Returns:
        Keras model with one hidden layer of 64 units.
    """
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(_WIDTH, activation="relu"),
            keras.layers.Dense(num_classes),
        ]
    )


class OpenSetClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of known classes that rejects all other inputs.

    To scikit-learn it is a classifier, so it works in pipelines, searches and
    cross-validation. Its scores follow scikit-learn's outlier detectors: larger
    is more like the known classes, and inputs with a negative
    `decision_function` are rejected.

    `fit` holds out part of the data, trains a Keras network on the rest with
    Class Anchor Clustering, replaces the anchors with class means, and sets the
    threshold on the held-out part. Inputs are converted to float32. Scale them
    first, for example with a `StandardScaler`; the network does not.

    Args:
        network: function from the shape of one input and the number of classes
            to a Keras model that ends in one logit per class. None: one hidden
            layer of 64 units. (For a search on several processes, define it at
            the top of a module.)
        epochs: number of passes over the data, at least 1.
        batch_size: rows per training step, at least 1.
        learning_rate: learning rate of Adam, above 0.
        rejection_score: name of the unknown score, one of
            `cac_tf.scores.names()`. (An estimator's `score` is its accuracy.)
        true_positive_rate: desired share of known inputs that are accepted, in
            (0, 1).
        validation_fraction: share of each class that is held out for the
            threshold, in (0, 1).
        unknown_label: what `predict` returns for a rejected input; it must not
            be one of the classes. If its kind (number, string, boolean) differs
            from theirs, such as -1 for string classes, `predict` returns an
            object array.
        random_state: seed for the split, the weights and the order of the
            examples; None or a `RandomState`: a new one for each call.
        verbose: as in Keras: 0 is silent, 2 prints one line per epoch.

    Attributes:
        classes_: (N,) the known classes, sorted.
        n_features_in_: length of the second axis of `X` in `fit`.
        feature_names_in_: names of the columns, if `X` was a data frame with
            such names.
        model_: the `cac_tf.OpenSetClassifier`, to save or export. Its class
            names are the classes as strings.
        offset_: minus the threshold: `decision_function` is
            `score_samples` minus this.

    Example:

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]] * 100)
    >>> y = np.array([3, 7] * 100)
    >>> classifier = OpenSetClassifier(epochs=20, random_state=0).fit(X, y)
    >>> classifier.predict([[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]])
    array([ 3,  7, -1])
    """

    def __init__(
        self,
        network: Callable[..., keras.Model] | None = None,
        *,
        epochs: int = 50,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        rejection_score: str = "gamma",
        true_positive_rate: float = 0.95,
        validation_fraction: float = 0.2,
        unknown_label: Any = UNKNOWN,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.rejection_score = rejection_score
        self.true_positive_rate = true_positive_rate
        self.validation_fraction = validation_fraction
        self.unknown_label = unknown_label
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Trains, re-centers and calibrates, from new weights each time.

        Sets the backend's seed; Python's and NumPy's random states are left
        unchanged.

        Args:
            X: (n, ...) numbers.
            y: (n,) classes: integers, strings or booleans.

        Returns:
            The estimator.

        Raises:
            TypeError: a parameter of the wrong type, or sparse data.
            ValueError: a parameter that is not allowed; data that are not
                finite, have fewer than two classes, or contain `unknown_label`;
                a class too small to hold out a part.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype="float32", allow_nd=True)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        self._check_classes(classes)
        random_state = check_random_state(self.random_state)
        seed = random_state.randint(_LARGEST_SEED, dtype="uint32")
        x_train, x_held_back, y_train, _ = train_test_split(
            *(X, labels),
            test_size=self.validation_fraction,
            stratify=labels,
            random_state=random_state,
        )
        with _seeded(int(seed)):
            build = self.network or dense_network
            classifier = build(X.shape[1:], len(classes))
            classifier.compile(
                keras.optimizers.Adam(self.learning_rate), losses.CACLoss()
            )
            classifier.fit(
                *(x_train, y_train),
                batch_size=self.batch_size,
                epochs=self.epochs,
                verbose=self.verbose,
            )
            # (Layers that are copied draw seeds too.)
            model = models.OpenSetClassifier.from_classifier(
                classifier,
                (x_train, y_train),
                class_names=[str(name) for name in classes],
                score=self.rejection_score,
            )
        model.calibrate(x_held_back, true_positive_rate=self.true_positive_rate)
        self.classes_, self.model_ = classes, model
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of each input, or `unknown_label`.

        Args:
            X: (n, ...) numbers, of the shape of those in `fit`.

        Returns:
            (n,) array.
        """
        found = self._asked(X, "predict_open_set")
        unknown = np.array([self.unknown_label])
        if _kind_of(unknown) != _kind_of(self.classes_):
            unknown = unknown.astype(object)
        # UNKNOWN is -1: the last answer.
        answers = np.concatenate([self.classes_, unknown])
        return answers[found.class_id]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of each input, as if it were known.

        The softmin of the distances to the class centers or, for a rejection
        score that reads no distances, the softmax of the logits. Rejected
        inputs have them too.

        Args:
            X: (n, ...) numbers.

        Returns:
            (n, N) float32; rows sum to 1.
        """
        found = self._asked(X, "predict_scores")
        if self.model_.score.reads_distances:
            return scipy.special.softmax(-found.distances, axis=1)
        return scipy.special.softmax(found.logits, axis=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Minus the unknown score; larger is more like the known classes.

        Args:
            X: (n, ...) numbers.

        Returns:
            (n,) float64.
        """
        found = self._asked(X, "predict_scores")
        return -found.unknown_score.astype("float64")

    def decision_function(self, X: Any) -> np.ndarray:
        """How far inside the threshold an input is; below 0 it is rejected.

        It does not separate two classes, although scikit-learn's scorers for
        binary problems, such as "roc_auc", would read it that way.

        Args:
            X: (n, ...) numbers.

        Returns:
            (n,) float64, also for more than two classes.
        """
        return self.score_samples(X) - self.offset_

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None
    ) -> float:
        """Closed-set accuracy: the accuracy of the classes before rejection.

        Args:
            X: (n, ...) numbers.
            y: (n,) or (n, 1) classes. Inputs labeled `unknown_label` do not
                count.
            sample_weight: None or (n,).

        Returns:
            Accuracy, in [0, 1].

        Raises:
            ValueError: every input is unknown, or `X` and `y` differ in length.
        """
        found = self._asked(X, "predict_scores")
        # A list of texts and -1 would become one of texts alone.
        y = np.asarray(y) if hasattr(y, "dtype") else np.array(y, object)
        y = column_or_1d(y)
        check_consistent_length(X, y)
        is_known = y.astype(object) != self.unknown_label
        if not is_known.any():
            raise ValueError("Accuracy needs at least one known input.")
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight)[is_known]
        predicted = self.classes_[found.predicted_class_id]
        return accuracy_score(
            np.array(y[is_known].tolist()),
            predicted[is_known],
            sample_weight=sample_weight,
        )

    @property
    def offset_(self) -> float:
        return -float(self.model_.threshold)  # type: ignore[arg-type]

    def _asked(self, X, method):
        """What a method of the fitted model says of inputs."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False, dtype="float32", allow_nd=True)
        return getattr(self.model_, method)(X)

    def _check_parameters(self):
        for name in ("epochs", "batch_size"):
            check_scalar(getattr(self, name), name, numbers.Integral, min_val=1)
        check_scalar(
            *(self.learning_rate, "learning_rate", numbers.Real),
            min_val=0,
            include_boundaries="neither",
        )
        for name in ("true_positive_rate", "validation_fraction"):
            check_scalar(
                *(getattr(self, name), name, numbers.Real),
                min_val=0,
                max_val=1,
                include_boundaries="neither",
            )
        score_rules.check(self.rejection_score)

    def _check_classes(self, classes):
        if self.unknown_label in classes.tolist():
            raise ValueError(
                f"unknown_label {self.unknown_label!r} is one of the classes "
                "in y. Remove the unknown inputs; or, if it is a class, "
                "choose another unknown_label."
            )
        if len(classes) < 2:
            raise ValueError(
                "Training needs at least two classes; y contains only one "
                f"class: {classes[0]}."
            )
        check_class_names([*map(str, classes)], reserved=UNKNOWN_NAME)


def _kind_of(values):
    """Texts, booleans or numbers: an array of two kinds would change one."""
    kind = values.dtype.kind
    return "text" if kind in "UO" else "boolean" if kind == "b" else "number"


@contextlib.contextmanager
def _seeded(seed):
    """Keras and its backend are seeded; others' random numbers are kept."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
