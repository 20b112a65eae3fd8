# SPDX-License-Identifier: Apache-2.0
"""CROSR: its network by its equations, its training, its resume."""

import keras
import numpy as np
import pytest

from cac_tf import models
from cac_tf.losses.reconstruction import ReconstructionLoss
from cac_tf.methods.crosr import hierarchy
from cac_tf.models import networks
from tests import execution
from tests.methods.conftest import train

pytestmark = pytest.mark.filterwarnings("ignore:These classes keep")


@pytest.fixture(scope="module")
def trained(digits, network):
    quick = {
        "network": network,
        "latent_channels": 4,
        "epochs": 12,
        "learning_rate": 0.1,
        "batch_size": 16,
    }
    return lambda folder, **values: train(
        "crosr", digits, folder, {**quick, **values}
    )


@pytest.fixture(scope="module")
def finished(trained, tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run"))


def outputs_of(model, images):
    return model.predict_on_batch(np.asarray(images))


# ---- the network ------------------------------------------------------------


def convolved(x, layer):
    """A 3x3 convolution with zeros around the map, one place at a time."""
    kernel, bias = map(np.float64, layer.get_weights())
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    made = np.zeros((*x.shape[:3], kernel.shape[-1])) + bias
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            made[:, i, j] += np.tensordot(
                padded[:, i : i + 3, j : j + 3], kernel, 3
            )
    return made


def enlarged(x, layer, like):
    """Each place becomes a square of its own, cropped to the size wanted."""
    kernel, bias = map(np.float64, layer.get_weights())
    height, width = kernel.shape[:2]
    made = np.zeros(
        (len(x), height * x.shape[1], width * x.shape[2], kernel.shape[2])
    )
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            square = np.einsum("bc,hwoc->bhwo", x[:, i, j], kernel)
            rows, columns = height * i, width * j
            made[:, rows : rows + height, columns : columns + width] = square
    return made[:, : like.shape[1], : like.shape[2]] + bias


@pytest.mark.parametrize("size", [(8, 8), (11, 6)])
def test_the_network_is_that_of_the_equations(size, rng):
    inputs = keras.Input((*size, 2))
    x1 = keras.layers.Conv2D(5, 3, strides=2, padding="same")(inputs)
    x1 = keras.layers.ReLU()(x1)
    x2 = keras.layers.MaxPooling2D(2)(keras.layers.Conv2D(6, 1)(x1))
    flat = keras.layers.Flatten()(x2)
    network = keras.Model(inputs, keras.layers.Dense(3)(flat))
    maps = keras.Model(inputs, [x1, x2])
    mean, std = [0.4, 0.1], [0.5, 2.0]
    model = hierarchy.with_hierarchical_reconstruction(
        network, (mean, std), latent_channels=4, weight_decay=0.0, seed=7
    )
    # Biases too are seen.
    model.set_weights([0.3 * rng.normal(size=w.shape) for w in model.weights])
    images = np.float32(rng.normal(size=(5, *size, 2)))
    outputs = {k: np.asarray(v) for k, v in model(images).items()}
    np.testing.assert_array_equal(outputs["logits"], network(images))
    x1, x2 = map(np.float64, maps(images))
    z1, z2 = (
        np.maximum(convolved(x, model.get_layer(name)), 0)
        for x, name in ((x1, "lateral1"), (x2, "lateral2"))
    )
    np.testing.assert_allclose(
        outputs["latents"],
        np.concatenate([z1.mean(axis=(1, 2)), z2.mean(axis=(1, 2))], axis=1),
        rtol=1e-4,
        atol=1e-5,
    )
    back = convolved(z2, model.get_layer("back2"))
    drawn = np.maximum(enlarged(back, model.get_layer("up2"), x1), 0)
    back = convolved(z1, model.get_layer("back1")) + drawn
    drawn = enlarged(back, model.get_layer("up1"), images)
    np.testing.assert_allclose(
        outputs["reconstruction"],
        1 / (1 + np.exp(-drawn)),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        outputs["pixels"], np.float64(images) * std + mean, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("openset_cnn", 16, ["dropout3", "dropout6", "dropout9"]),
        # Of one place, the half is the same: that is no smaller map.
        ("openset_cnn", 4, ["dropout3", "dropout6"]),
        ("resnet18", 16, [f"stage{n}_block1_relu1" for n in (2, 3, 4)]),
    ],
)
def test_maps_are_those_before_the_next_convolution(name, size, expected):
    network = networks.find(name)(3, (size, size, 1), dropout=0.1)
    wanted = [network.get_layer(one).output for one in expected]
    found = hierarchy.maps_of(network)
    assert [id(x) for x in found] == [id(x) for x in wanted]


def test_a_network_without_maps():
    layers = keras.layers
    flat = keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Flatten(), layers.Dense(3)]
    )
    same_size = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )

    class Own(keras.Model):
        def call(self, x):
            return x

    for network in (flat, same_size, Own()):
        with pytest.raises(
            ValueError, match="has no feature maps to reconstruct"
        ):
            hierarchy.with_hierarchical_reconstruction(
                network, ([0.5], [1.0]), 4, 0.0, seed=0
            )


def test_its_own_weights_have_the_penalty_and_a_seed():
    def made(seed, weight_decay=0.1):
        network = models.openset_cnn(3, (8, 8, 1), seed=1)
        return hierarchy.with_hierarchical_reconstruction(
            network, ([0.5], [1.0]), 4, weight_decay, seed
        )

    one, again, other = made(1), made(1), made(2)
    for a, b in zip(one.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = [m.get_layer("lateral1").kernel.numpy() for m in (one, other)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01
    added = [
        np.float64(w).ravel()
        for layer in one.layers
        if layer.name.startswith(("lateral", "back", "up"))
        for w in layer.get_weights()
    ]
    assert len(added) == 18
    wanted = 0.05 * np.square(np.concatenate(added)).sum()
    np.testing.assert_allclose(sum(one.losses), wanted, rtol=1e-5)
    assert not made(1, 0.0).losses


# ---- the loss ---------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 1.0, 7.0])
def test_loss_against_numpy(weight, rng, mode):
    labels = np.arange(6) % 3
    logits = np.float32(rng.normal(size=(6, 3)))
    pixels, drawn = np.float32(rng.uniform(size=(2, 6, 4, 5, 2)))
    z = np.float64(logits)
    of_class = np.log(np.exp(z).sum(axis=1)) - z[range(6), labels]
    apart = np.float64(drawn) - np.float64(pixels)
    wanted = of_class + weight * np.square(apart).mean(axis=(1, 2, 3))
    loss = ReconstructionLoss(weight)

    def value(logits, pixels, drawn):
        named = {"logits": logits, "pixels": pixels, "reconstruction": drawn}
        return loss.call(labels, named)

    each = execution.compiled(value, mode)(logits, pixels, drawn)
    np.testing.assert_allclose(each, wanted, rtol=1e-5)
    again = ReconstructionLoss.from_config(loss.get_config())
    assert again.weight == weight


# ---- trained ----------------------------------------------------------------


def test_it_learns_to_classify_and_to_reconstruct(finished, digits):
    model, run = finished
    losses_seen = [logs["loss"] for logs in run.history]
    assert losses_seen[-1] < losses_seen[0]
    outputs = outputs_of(model, digits.known_test.images)
    right = outputs["logits"].argmax(axis=1) == digits.known_test.labels
    assert right.mean() > 0.9
    pixels = np.float32(digits.known_test.images) / 255
    np.testing.assert_allclose(outputs["pixels"], pixels, atol=1e-5)
    error = np.square(outputs["reconstruction"] - pixels).mean()
    # Better than grey.
    assert error < 0.8 * pixels.var()


def test_the_weight_of_the_reconstruction(finished, trained, digits, tmp_path):
    """At 0 nothing pulls towards the image; more draws it better."""
    errors, images = [], digits.known_test.images
    for weight in (0.0, 20.0):
        model, _ = trained(tmp_path / str(weight), reconstruction_weight=weight)
        outputs = outputs_of(model, images)
        apart = outputs["reconstruction"] - outputs["pixels"]
        errors.append(np.square(apart).mean())
    outputs = outputs_of(finished[0], images)
    middle = np.square(outputs["reconstruction"] - outputs["pixels"]).mean()
    assert errors[0] > middle > errors[1]
    # Better than one picture for all images.
    assert errors[1] < outputs["pixels"].var(axis=0).mean()
