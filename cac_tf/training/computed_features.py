# SPDX-License-Identifier: Apache-2.0
"""What a frozen network makes of images, computed once and kept on disk."""

import concurrent.futures
import hashlib
import json
import os

import numpy as np

from cac_tf import atomic_files
from cac_tf import keras_private
from cac_tf.data.number_rows import finite_rows

# Images of one file, and of one step. A killed call loses at most these.
_ROWS = 512
# Decoded while the network computes: this many files' images.
_AHEAD = 2


def computed_features(
    backbone, images, folder, *, batch_size=32, progress=None
):
    """Computes a network's outputs, once for each image.

    They are cached by the content of the image and of the network, whatever
    part, order or data set the image is in. So the same call continues where a
    killed one stopped, and another choice of classes computes only the new
    images.

    Args:
        backbone: Keras model, (B, ...) -> (B, E), such as one from
            `pretrained_backbone`. It is not trained.
        images: (n, ...) array or `StreamedImages`, as in `Examples`.
        folder: folder of the cache; created if it does not exist.
        batch_size: number of images computed at once.
        progress: called as images are computed, with the number in this batch,
            so far, and in total; not for cached ones.

    Returns:
        (n, E) float16.

    Raises:
        ValueError: the network returns something other than (B, E) numbers.
        OSError: the cache cannot be written.

    Example:

    >>> import keras, tempfile
    >>> network = keras.Sequential([
    ...     keras.Input([2, 2, 1]), keras.layers.Flatten()])
    >>> images = np.arange(12, dtype="float32").reshape(3, 2, 2, 1)
    >>> kept = tempfile.mkdtemp()
    >>> computed_features(network, images, kept)[2]
    array([ 8.,  9., 10., 11.], dtype=float16)
    >>> bool((computed_features(network, images[::-1], kept)[0] == 8 +
    ...     np.arange(4)).all())  # Nothing is computed again.
    True
    """
    width = backbone.output_shape[1:]
    if len(width) != 1 or width[0] is None:
        raise ValueError(
            "Features must have shape (B, E), one row per image; the network "
            f"returns {backbone.output_shape}. Pool them in its last layer."
        )
    folder = os.path.join(folder, f"features-{identity(backbone)[:16]}")
    os.makedirs(folder, exist_ok=True)
    keys = _keys(images)
    found = np.empty((len(keys), *width), "float16")
    # (The rows of a dict are those that are seen last: one of each image.)
    missing = {key: row for row, key in enumerate(keys)}
    stored = _read(folder, missing)
    for key in stored:
        del missing[key]
    rows = np.sort(np.array(list(missing.values()), "int64"))
    blocks = [rows[i : i + _ROWS] for i in range(0, len(rows), _ROWS)]
    done = 0
    for block, pixels in _ahead(images, blocks):
        values = backbone.predict(pixels, batch_size, verbose=0)
        values = np.asarray(values, "float16")
        own = [keys[row] for row in block]
        _write(folder, own, values)
        stored.update(zip(own, values, strict=True))
        done += len(block)
        if progress is not None:
            progress(len(block), done, len(rows))
    for row, key in enumerate(keys):
        found[row] = stored[key]
    return found


def dataset_of_features(backbone, dataset, folder, *, progress=None):
    """Turns a data set into one of vectors, with a frozen network.

    `OpenSetClassifier.with_backbone` turns a model trained on these vectors
    into one that takes the network's inputs.

    Args:
        backbone, folder, progress: as for `computed_features`.
        dataset: `OpenSetDataset`.

    Returns:
        `OpenSetDataset` with the same classes, labels and names; inputs are
        (n, E) float32.

    Raises:
        ValueError, OSError: see `computed_features`; ValueError also if
            features are not finite.

    Example:

    >>> import keras, tempfile
    >>> from cac_tf.data import load_open_set_dataset
    >>> from cac_tf.losses import CACLoss
    >>> from cac_tf.models import OpenSetClassifier
    >>> backbone = keras.Sequential([
    ...     keras.Input([8, 8, 1]), keras.layers.Rescaling(1 / 255),
    ...     keras.layers.Flatten()])
    >>> digits = load_open_set_dataset("digits")
    >>> vectors = dataset_of_features(backbone, digits, tempfile.mkdtemp())
    >>> vectors.train.images.shape
    (605, 64)
    >>> head = keras.Sequential([keras.Input([64]), keras.layers.Dense(6)])
    >>> head.compile(keras.optimizers.Adam(0.1), CACLoss())
    >>> _ = head.fit(*vectors.train, epochs=3, verbose=0)
    >>> model = OpenSetClassifier.from_classifier(
    ...     head, tuple(vectors.train), score="knn").with_backbone(backbone)
    >>> model.inputs_taken.shape
    (8, 8, 1)
    """

    def of(inputs):
        found = computed_features(backbone, inputs, folder, progress=progress)
        return finite_rows(found, "What the network makes of the images")

    return dataset.with_inputs(of)


def identity(model):
    """SHA-256 of what a model computes: its layers and weights.

    The names of layers, which Keras numbers anew in each process, do not
    count.

    Args:
        model: built Keras model.

    Returns:
        64 hexadecimal digits.

    Example:

    >>> import keras
    >>> layers = [keras.Input([2]), keras.layers.Dense(1)]
    >>> one = keras.Sequential(layers)
    >>> other = keras.models.clone_model(one)
    >>> before = identity(one) == identity(other)  # Of other weights.
    >>> other.set_weights(one.get_weights())
    >>> before, identity(one) == identity(other)
    (False, True)
    """
    names = [layer.name for layer in keras_private.layers_inside(model)]
    places = {name: str(place) for place, name in enumerate(names)}
    config = _renamed(model.get_config(), places)
    text = json.dumps(config, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for variable in model.weights:
        values = np.ascontiguousarray(variable)
        digest.update(f"{values.dtype.str}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _renamed(value, places):
    if isinstance(value, dict):
        return {key: _renamed(one, places) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(one, places) for one in value]
    return places.get(value, value) if isinstance(value, str) else value


def _keys(images):
    """A text for the content of each image, its size and how it got it."""
    shape = str(tuple(images.shape[1:])).encode()
    if hasattr(images, "digests"):
        contents = images.digests
        kind = f"file, {images.interpolation}".encode()
    else:
        contents, kind = images, images.dtype.str.encode()
    return [
        hashlib.sha256(kind + shape + np.ascontiguousarray(one).tobytes())
        .hexdigest()[:32]
        for one in contents
    ]  # fmt: skip


def _ahead(images, blocks):
    """The rows of each block and their images, which are decoded ahead."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tasks = []
        for place, block in enumerate(blocks):
            while len(tasks) < min(place + _AHEAD, len(blocks)):
                tasks.append(
                    pool.submit(images.__getitem__, blocks[len(tasks)])
                )
            yield block, np.asarray(tasks[place].result())
            tasks[place] = None


def _write(folder, keys, features):
    name = hashlib.sha256("".join(keys).encode()).hexdigest()[:32]
    path = os.path.join(folder, f"{name}.npz")
    with atomic_files.replacing(path) as temporary:
        np.savez(temporary, keys=np.array(keys), features=features)


def _read(folder, wanted):
    """Features by key, of those that are wanted and kept."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if atomic_files.is_leftover(name) or not name.endswith(".npz"):
            continue
        with np.load(os.path.join(folder, name), allow_pickle=False) as file:
            keys = file["keys"]
            own = [row for row, key in enumerate(keys) if key in wanted]
            if own:
                features = file["features"]
                found.update((str(keys[row]), features[row]) for row in own)
    return found
