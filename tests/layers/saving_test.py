# SPDX-License-Identifier: Apache-2.0
"""Every layer in a saved model, made under a policy of half precision."""

import keras
import numpy as np
import pytest

from cac_tf import layers
from cac_tf.layers.batch_normalization import BatchNormalization
from cac_tf.layers.precision import dtype_policy

IMAGE = (4, 4, 2)


@dtype_policy("float32")
def decoder():
    dense, reshape = keras.layers.Dense(32), keras.layers.Reshape(IMAGE)
    return keras.Sequential([keras.Input([5]), dense, reshape])


# How it is made, and the shapes of its inputs.
LAYERS = {
    "augmentation": (lambda: layers.AffineAugmentation(0.5, 0.3, 9.0), [IMAGE]),
    "anchored": (lambda: layers.AnchoredDistance(5.0), [(3,)]),
    "batch": (lambda: BatchNormalization(epsilon=0.1), [IMAGE]),
    "channels": (
        lambda: layers.ChannelNormalization([0.1, 0.2], np.array([0.4, 0.5])),
        [IMAGE],
    ),
    "class": (lambda: layers.ClassDistances(3, 2.0, learnt=False), [(4,)]),
    "preprocessing": (lambda: layers.ImagePreprocessing(2, 3), [IMAGE]),
    "reconstruction": (
        lambda: layers.ClassConditionedReconstruction(decoder(), 3, seed=1),
        [IMAGE, (5,)],
    ),
    "rejection": (layers.RejectionScore, [(3,)]),
    "symmetry": (lambda: layers.RandomSymmetry(seed=3), [IMAGE]),
}
# They compute as the layers around them do.
OF_THE_POLICY = ("batch", "symmetry")


@pytest.mark.parametrize("name", LAYERS)
def test_in_a_saved_model(name, tmp_path, rng):
    """In float32, where it is a matter of precision."""
    make, shapes = LAYERS[name]
    inputs = [keras.Input(shape, dtype="float32") for shape in shapes]
    with dtype_policy("mixed_bfloat16"):
        layer = make()
        model = keras.Model(inputs, layer(*inputs))
    model.set_weights([rng.uniform(0.5, 2, w.shape) for w in model.weights])
    values = [np.float32(rng.uniform(0, 9, (2, *shape))) for shape in shapes]
    expected = model.predict(values, verbose=0)
    if name not in OF_THE_POLICY:
        in_float32 = keras.Model(inputs, make()(*inputs))
        in_float32.set_weights(model.get_weights())
        keras.tree.map_structure(
            lambda one, other: np.testing.assert_array_equal(
                one, other, strict=True
            ),
            in_float32.predict(values, verbose=0),
            expected,
        )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found = keras.tree.flatten(loaded.predict(values, verbose=0))
    for one, other in zip(found, keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    configs = [
        one.get_config() for one in (loaded.get_layer(layer.name), layer)
    ]
    for config in configs:
        # Of a model within, the shapes that it was built for are kept too.
        config.pop("decoder", None)
    assert configs[0] == configs[1]
