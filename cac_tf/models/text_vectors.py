# SPDX-License-Identifier: Apache-2.0
"""Texts as vectors, and a classifier of texts from one of such vectors."""

from collections.abc import Iterable

import keras
import numpy as np

from cac_tf import lazy
from cac_tf.models.backbone_checks import by_name
from cac_tf.models.raw_inputs import TEXTS

decomposition = lazy.module("sklearn.decomposition")
sparse = lazy.module("scipy.sparse")

# Runs of so many letters; so many of them at most are told apart, the most
# frequent ones; and so many numbers of a vector.
#
# Chosen by leaving known classes out of BANKING77 (half of them known, a
# quarter of these left out and taken for unknown, two draws; mean AUROC of
# gamma, relative_mahalanobis and knn). After 60 passes: words, weighted by
# their inverse frequency, .874, .872 and .874; words and pairs of them .860,
# .870 and .861. After 40: runs of letters .872, .881 and .895, weighted .870,
# .875 and .879; where runs that are not known make a text shorter, .874, .883
# and .895. No unknown test class was looked at.
_LETTERS, _MOST_RUNS, _WIDTH = (3, 4, 5), 20_000, 300
_TEXTS_AT_ONCE = 512


def text_vectors(texts: Iterable[str], seed: int = 0) -> keras.Model:
    """Latent semantic analysis of texts, as layers of Keras.

    A text, in lower case and without punctuation, is the set of its runs of
    three to five letters, spaces among them, so that a misspelt word is not
    lost: a vector h of zeros and ones, whose first entry says whether there
    are others than those of `texts`. It is divided by its length, and brought
    to the directions V in which the `texts` vary most, their first right
    singular vectors: `x = V^T h / |h|`.

    Args:
        texts: n texts: those that are trained on, and no others.
        seed: of the algorithm for V.

    Returns:
        Frozen Keras model, (B,) texts -> (B, E) float32. E is 300, or less
        where there are fewer texts or runs.

    Raises:
        ValueError: Keras runs on another backend than TensorFlow, or there
            are fewer than three texts, or three runs of letters.

    Example:

    >>> model = text_vectors(["Good!", "gold", "good"])
    >>> print(", ".join(sorted(model.get_layer("letters").get_vocabulary())))
    [UNK], g o l, g o l d, g o o, g o o d, o l d, o o d
    >>> model(keras.ops.convert_to_tensor(["GOOD", "cat"])).shape
    TensorShape([2, 2])
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Training on texts needs TensorFlow, which Keras' text layer "
            "requires: set KERAS_BACKEND=tensorflow."
        )
    texts = np.fromiter(texts, object)
    learnt = _layer_of_letters()
    learnt.adapt(map(keras.ops.convert_to_tensor, _some_at_once(texts)))
    runs = [
        run
        for run in learnt.get_vocabulary(include_special_tokens=False)
        # A saved vocabulary has one in each line.
        if not {"\n", "\r"} & set(run)
    ]
    if min(len(runs), len(texts)) < 3:
        raise ValueError(
            f"{len(texts)} training texts with {len(runs)} different "
            "sequences of three to five letters are too few: at least three "
            "of each are needed."
        )
    letters = _layer_of_letters()
    letters.set_vocabulary(runs)
    inputs = keras.Input((), dtype=TEXTS, name="inputs")
    # (Of whole numbers, whatever Keras says of their type.)
    floats = keras.layers.Rescaling(1.0, dtype="float32", name="as_floats")
    unit = keras.layers.UnitNormalization(dtype="float32", name="unit")
    rows = unit(floats(letters(inputs)))
    known = sparse.vstack(
        [
            sparse.csr_array(part)
            for part in _outputs(keras.Model(inputs, rows), texts)
        ]
    )
    width = min(_WIDTH, min(known.shape) - 1)
    # (Two rounds, as the directions need not be exact.)
    svd = decomposition.TruncatedSVD(width, n_iter=2, random_state=seed)
    project = keras.layers.Dense(
        width, use_bias=False, dtype="float32", name="directions"
    )
    model = keras.Model(inputs, project(rows), name="text_vectors")
    project.set_weights([np.float32(svd.fit(known).components_.T)])
    model.trainable = False
    return model


def _layer_of_letters():
    return keras.layers.TextVectorization(
        max_tokens=_MOST_RUNS,
        split="character",
        ngrams=_LETTERS,
        output_mode="multi_hot",
        name="letters",
    )


def _some_at_once(texts):
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        yield texts[start : start + _TEXTS_AT_ONCE]


def _outputs(model, texts):
    for some in _some_at_once(texts):
        yield keras.ops.convert_to_numpy(
            model(keras.ops.convert_to_tensor(some))
        )


def vectors_of(model: keras.Model, texts: np.ndarray) -> np.ndarray:
    """(n, E) float32 vectors of n texts, by a model of `text_vectors`."""
    none = np.zeros((0, model.output_shape[1]), "float32")
    return np.concatenate([none, *_outputs(model, texts)])


def text_classifier(
    vectors: keras.Model, classifier: keras.Model
) -> keras.Model:
    """A classifier of texts: `classifier(vectors(texts))`.

    Args:
        vectors: of `text_vectors`.
        classifier: Keras model of these vectors.

    Returns:
        A functional `keras.Model`, with the outputs of the classifier.
    """
    inputs = keras.Input((), dtype=TEXTS, name="inputs")
    outputs = classifier(vectors(inputs))
    if isinstance(outputs, dict):
        outputs = by_name(outputs, classifier.name)
    return keras.Model(inputs, outputs, name="text_classifier")
