# SPDX-License-Identifier: Apache-2.0
"""G-OpenMax: what it generates and keeps, its generator, score and resume."""

import dataclasses
import types

import keras
import numpy as np
import pytest
from scipy import special
from scipy import stats

from cac_tf import methods
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.methods.g_openmax import conditional_gan
from cac_tf.methods.g_openmax import conditional_networks
from cac_tf.methods.g_openmax import generated_images
from cac_tf.methods.known_data import check_enough_for
from cac_tf.scores.unknown_class_openmax import UnknownClassOpenMax
from tests import execution
from tests.methods.conftest import train
from tests.methods.killed_training import check_resume

pytestmark = [
    pytest.mark.filterwarnings("ignore:These classes keep"),
    pytest.mark.usefixtures("network"),
]

SHAPE, CLASSES, LATENTS = (2, 3, 1), 4, 5
QUICK = {
    "network": "small_network",
    "dropout": 0.0,
    "epochs": 3,
    "gan_epochs": 6,
    "gan_width": 8,
    "gan_learning_rate": 5e-3,
    "gan_batch_size": 8,
    "generated_unknowns": 96,
    # Of three classes, one is nearly always more likely than 0.5.
    "largest_known_probability": 0.9,
    "unknown_class_epochs": 2,
}


def trained(digits, folder, callbacks=None, **values):
    values = {**QUICK, **values}
    return train("g_openmax", digits, folder, values, callbacks=callbacks)


# ---- what is generated, and kept ------------------------------------------


def linear(rng, inputs, outputs, length=1.0):
    """A Keras model from several vectors or images, and its matrix."""
    tensors = [keras.Input(shape) for shape in inputs]
    flat = [keras.layers.Flatten()(x) for x in tensors]
    dense = keras.layers.Dense(int(np.prod(outputs)), use_bias=False)
    x = dense(keras.layers.Concatenate()(flat) if len(flat) > 1 else flat[0])
    model = keras.Model(
        tensors if len(tensors) > 1 else tensors[0],
        keras.layers.Reshape(outputs)(x),
    )
    fan_in = dense.kernel.shape[0]
    dense.kernel.assign(
        length * rng.standard_normal(dense.kernel.shape) / np.sqrt(fan_in)
    )
    return model, np.float64(dense.kernel.numpy())


@pytest.fixture
def parts(rng):
    """A classifier, a data set, and matrices of what replaces networks."""
    classifier, to_logits = linear(rng, [SHAPE], (CLASSES,), length=4.0)
    train = types.SimpleNamespace(
        images=rng.integers(0, 256, (30, *SHAPE)).astype("uint8"), size=30
    )
    dataset = types.SimpleNamespace(
        train=train, class_names=[str(i) for i in range(CLASSES)]
    )
    parts = types.SimpleNamespace(normalize=None, network=classifier)
    return parts, dataset, to_logits


def check_kept(images, draw):
    """The first 50 that are kept of the images that `draw` gives, in rounds.

    `draw` returns images as vectors, and which of them are kept.
    """
    kept, rounds = np.zeros((0, np.prod(SHAPE))), 0
    while len(kept) < 50:
        expected, is_kept = draw()
        kept = np.concatenate([kept, expected[is_kept]])
        rounds += 1
    assert rounds > 1
    np.testing.assert_allclose(
        images.reshape(len(images), -1), kept[:50], rtol=1e-4, atol=1e-4
    )


def test_images_between_two_of_which_no_class_is_certain(parts, rng):
    parts, dataset, to_logits = parts
    encoder, to_latents = linear(rng, [SHAPE], (LATENTS,))
    decoder, to_images = linear(rng, [(LATENTS,)], SHAPE)
    generator = types.SimpleNamespace(encoder=encoder, generator=decoder)
    method = methods.get("g_openmax")
    recipe = method.recipe(generated_unknowns=50)
    images, _ = method.unknowns(
        parts, generator, dataset, recipe, np.random.default_rng(8)
    )
    again = np.random.default_rng(8)
    pixels = dataset.train.images.reshape(30, -1) / 255.0

    def draw():
        one, other = again.integers(30, size=(2, 50))
        share = again.random(50)[:, None]
        latents = pixels @ to_latents
        latents = (1.0 - share) * latents[one] + share * latents[other]
        expected = latents @ to_images
        largest = special.softmax(expected @ to_logits, axis=1).max(axis=1)
        return expected, largest < 0.5

    check_kept(images, draw)


def test_few_images_of_use_are_a_warning(parts, rng, monkeypatch):
    parts, dataset, _ = parts
    generator = types.SimpleNamespace(
        encoder=linear(rng, [SHAPE], (LATENTS,))[0],
        generator=linear(rng, [(LATENTS,)], SHAPE)[0],
    )
    method = methods.get("g_openmax")
    monkeypatch.setattr("cac_tf.methods.g_openmax._MOST_DRAWN", 1)
    with pytest.warns(UserWarning, match="Of 50 generated images, .* fewer"):
        images, _ = method.unknowns(
            parts, generator, dataset, method.recipe(generated_unknowns=50), rng
        )
    assert 0 < len(images) < 50


def test_images_of_mixed_classes_that_look_like_another(parts, rng):
    parts, dataset, to_logits = parts
    inputs = [(conditional_networks.NOISE,), (CLASSES,)]
    network, to_images = linear(rng, inputs, SHAPE)
    method = methods.get("g_openmax")
    recipe = method.recipe(generator="conditional", generated_unknowns=50)
    images, _ = method.unknowns(
        parts,
        types.SimpleNamespace(generator=network),
        dataset,
        recipe,
        np.random.default_rng(8),
    )
    again = np.random.default_rng(8)

    def draw():
        noise = again.standard_normal((50, conditional_networks.NOISE))
        vectors = again.standard_normal((50, CLASSES))
        vectors += (1.0 - vectors.sum(axis=1, keepdims=True)) / CLASSES
        expected = np.hstack([noise, vectors]) @ to_images
        seen = (expected @ to_logits).argmax(axis=1)
        return expected, seen != vectors.argmax(axis=1)

    check_kept(images, draw)


def test_class_vectors_are_normal_given_their_sum():
    vectors = generated_images.random_class_vectors(
        20000, 3, np.random.default_rng(0)
    )
    np.testing.assert_allclose(vectors.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(vectors.mean(axis=0), 1 / 3, atol=0.02)
    # The covariance of independent N(0, 1), given the sum.
    np.testing.assert_allclose(np.cov(vectors.T), np.eye(3) - 1 / 3, atol=0.03)
    assert (
        stats.kstest((vectors[:, 0] - 1 / 3) / np.sqrt(2 / 3), "norm").pvalue
        > 0.01
    )


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        (
            "interpolation",
            "None of the 1000 generated .* probability of 0.3 or more. Raise "
            "largest_known_probability, or lower epochs",
        ),
        (
            "conditional",
            "None of the 1000 .* that it was generated for. You may lower",
        ),
    ],
)
def test_no_image_is_of_use(parts, rng, generator, message):
    parts, dataset, _ = parts
    if generator == "interpolation":
        # One of three classes has more than 0.3 always.
        parts.network = linear(rng, [SHAPE], (3,))[0]
        made = types.SimpleNamespace(
            encoder=linear(rng, [SHAPE], (LATENTS,))[0],
            generator=linear(rng, [(LATENTS,)], SHAPE)[0],
        )
    else:
        # A generator that draws its class vector; a classifier that sees it.
        shape = (1, 1, CLASSES)
        inputs = [(conditional_networks.NOISE,), (CLASSES,)]
        drawing, _ = linear(rng, inputs, shape)
        drawing.set_weights([np.eye(104)[:, conditional_networks.NOISE :]])
        made = types.SimpleNamespace(generator=drawing)
        parts.network, _ = linear(rng, [shape], (CLASSES,))
        parts.network.set_weights([np.eye(CLASSES)])
    method = methods.get("g_openmax")
    recipe = method.recipe(
        generator=generator,
        generated_unknowns=20,
        largest_known_probability=0.3,
    )
    with pytest.raises(ValueError, match=message):
        method.unknowns(parts, made, dataset, recipe, rng)


def test_generation_leaves_the_networks_as_they_are(rng):
    def network(inputs, outputs):
        return keras.Sequential(
            [
                keras.Input([inputs]),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5, seed=1),
                keras.layers.Dense(outputs),
            ]
        )

    generator, classifier = network(LATENTS, 6), network(6, CLASSES)
    variables = [*generator.variables, *classifier.variables]
    before = [np.array(v) for v in variables]
    latents = np.float32(rng.standard_normal((8, LATENTS)))
    made = [
        generated_images.ClassifiedImages(
            generator, None, classifier, in_training_mode=training
        ).predict(latents, verbose=0)
        for training in (False, True)
    ]
    assert not np.allclose(made[0][0], made[1][0])
    for one, other in zip(before, variables, strict=True):
        np.testing.assert_array_equal(one, np.array(other))


# ---- the conditional generator --------------------------------------------


def log_sigmoid(x):
    return -np.logaddexp(0.0, -np.float64(x))


def test_losses_of_the_conditional_generator(rng):
    real, fake = np.float32(3 * rng.standard_normal((2, 7, 1)))
    judge, generator = conditional_gan.conditional_losses(real, fake)
    expected = -log_sigmoid(real).mean() - log_sigmoid(-fake).mean()
    np.testing.assert_allclose(judge, expected, rtol=1e-5)
    np.testing.assert_allclose(generator, -log_sigmoid(fake).mean(), rtol=1e-5)


def small_gan():
    gan = conditional_gan.ConditionalGAN((8, 8, 1), 3, width=2, seed=4)
    gan.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return gan


def test_each_network_follows_its_own_loss(digits, rng):
    """A step of gradient descent, by finite differences of both losses."""
    gan = small_gan()
    images, labels = digits.train.images[:12], digits.train.labels[:12]
    pixels = np.float32(images) / 255.0
    one_hot = np.eye(3, dtype="float32")[labels]
    start, state = gan.get_weights(), np.array(gan.noise.state)
    fake, vectors = map(np.asarray, gan(images, training=True))
    assert set(vectors.sum(axis=1)) == {1.0} and set(vectors.ravel()) == {0, 1}

    def judged(images, vectors):
        return gan.discriminator([images, vectors], training=True)

    def of_judge():
        return float(
            -log_sigmoid(judged(pixels, one_hot)).mean()
            - log_sigmoid(-np.float64(judged(fake, vectors))).mean()
        )

    def of_generator():
        gan.noise.state.assign(state)
        made, classes = gan(images, training=True)
        return float(-log_sigmoid(judged(made, classes)).mean())

    def slope(loss, kernel, direction, step=3e-4):
        at, values = np.array(kernel), []
        for sign in (-1, 1):
            kernel.assign(at + sign * step * direction)
            values.append(loss())
        kernel.assign(at)
        return (values[1] - values[0]) / (2 * step)

    kernels = {
        of_judge: gan.discriminator.get_layer("class_conv1").kernel,
        of_generator: gan.generator.get_layer("class_up").kernel,
    }
    before = {loss: np.array(kernel) for loss, kernel in kernels.items()}
    gan.set_weights(start)
    gan.noise.state.assign(state)
    logs = gan.train_on_batch(images, labels, return_dict=True)
    moved = {f: np.array(k) - before[f] for f, k in kernels.items()}
    gan.set_weights(start)
    np.testing.assert_allclose(
        logs["discriminator_loss"], of_judge(), rtol=1e-4
    )
    np.testing.assert_allclose(
        logs["generator_loss"], of_generator(), rtol=1e-4
    )
    for loss, kernel in kernels.items():
        gradient = -moved[loss] / 0.1
        length = np.linalg.norm(gradient)
        np.testing.assert_allclose(
            slope(loss, kernel, gradient / length), length, rtol=0.05
        )


def test_a_generator_that_collapsed_or_diverged(digits):
    images, labels = digits.train.images[:40], digits.train.labels[:40]
    gan = small_gan()
    names = digits.class_names
    gan.generator.get_layer("noise_up").kernel.assign(
        np.zeros((conditional_networks.NOISE, 8))
    )
    with pytest.raises(
        ValueError, match="collapsed: over 32 .* class '0', .* Raise gan_epochs"
    ):
        gan.check_not_collapsed(images, labels, names)
    gan.compile(keras.optimizers.SGD(1e30), run_eagerly=True)
    with pytest.raises(
        FloatingPointError,
        match=r"Lower gan_learning_rate\. The weights are no longer usable\.$",
    ):
        gan.fit(images, labels, batch_size=8, epochs=3, verbose=0)


def test_generated_images_that_are_no_numbers(digits, monkeypatch, tmp_path):
    method = methods.get("g_openmax")

    def unknowns(*arguments):
        return np.full((4, 8, 8, 1), np.nan), None

    monkeypatch.setattr(type(method), "unknowns", unknowns)
    with pytest.raises(FloatingPointError, match="4 of the 4 generated images"):
        trained(digits, tmp_path, epochs=1, generator="conditional")


def test_what_can_never_be_kept_is_found_first(tmp_path):
    """One of two classes always has a probability of a half."""
    two = load_open_set_dataset("digits", known_classes=["0", "1"])
    with pytest.raises(
        ValueError, match="2 known classes .* of 0.5 or more.*, now 0.5, above"
    ):
        trained(two, tmp_path, largest_known_probability=0.5)
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize("name", ["g_openmax", "crosr"])
def test_too_few_images_for_tails_are_found_first(digits, name):
    labels = digits.train.labels
    few = np.flatnonzero((labels != 2) | (np.cumsum(labels == 2) <= 2))
    few = dataclasses.replace(digits, train=digits.train.take(few))
    method = methods.get(name)
    with pytest.raises(
        ValueError, match="at least 3 training images of each.*'2' has 2"
    ):
        check_enough_for(scores.get(method.scores[0]), few)


@pytest.mark.parametrize("size", [(13, 20, 3), (32, 32, 3)])
def test_images_have_their_size_and_range(size):
    gan = conditional_gan.ConditionalGAN(size, 2, width=2, seed=0)
    images, _ = gan(np.zeros((4, *size)))
    assert images.shape == (4, *size)
    assert 0.0 <= np.min(images) < 0.5 < np.max(images) <= 1.0
    # Only the class vector differs.
    noise = np.zeros((2, conditional_networks.NOISE), "float32")
    one, other = np.asarray(gan.generator([noise, np.eye(2, dtype="float32")]))
    assert np.abs(one - other).max() > 1e-4


# ---- the whole course ------------------------------------------------------


@pytest.mark.slow
def test_resumes_to_the_same_weights(digits, tmp_path):
    """In the generator's training; osrci's test has that of the last class."""

    def train_in(folder, callbacks):
        return trained(digits, folder, callbacks, generator="conditional")

    check_resume(train_in, "conditional_gan", 1, tmp_path)


# ---- the score -------------------------------------------------------------


def log_odds(logits, labels, inputs, tail_size, rank, shift):
    """One input and one class at a time, with the class "unknown" written out.

    The logits are those of N + 1 classes, and every class has a mean; the last
    one's tail does not matter, as nothing is taken from 0.
    """
    logits, inputs = (
        np.pad(np.float64(z), ((0, 0), (0, 1))) for z in (logits, inputs)
    )
    known = logits.shape[1] - 1
    means, fits = [], []
    for j in range(known):
        own = logits[(labels == j) & (logits.argmax(axis=1) == j)]
        means.append(own.mean(axis=0))
        tail = np.sort(np.linalg.norm(own - means[j], axis=1))[-tail_size:]
        shape, _, scale = stats.weibull_min.fit(
            tail - tail[0] + shift, floc=0.0
        )
        fits.append((shape, tail[0] - shift, scale))
    found = []
    for z in inputs:
        revised = z.copy()
        for i, j in enumerate(np.argsort(-z[:known])[:rank]):
            distance = np.linalg.norm(z - means[j])
            share = stats.weibull_min.cdf(distance, *fits[j])
            share *= 1.0 if rank is None else 1.0 - i / rank
            revised[j] = z[j] * (1.0 - share)
        found.append(special.logit(special.softmax(revised)[-1]))
    return np.array(found)


@pytest.mark.parametrize(
    ("tail_size", "rank", "shift"), [(20, None, 1.0), (10, 2, 50.0)]
)
def test_score(tail_size, rank, shift, mode, rng):
    labels = np.arange(400) % 4
    logits = 8 * np.eye(4)[labels] - 4 + 1.5 * rng.standard_normal((400, 4))
    # Every tenth is taken for unknown.
    logits[::10] -= 9.0
    logits = np.float32(logits)
    inputs = np.float32(4 * rng.standard_normal((60, 4)))
    rule = UnknownClassOpenMax(tail_size, rank, shift)
    statistics = rule.fit(labels, logits=logits)
    actual = execution.compiled(
        lambda logits: rule(logits, **statistics), mode
    )(inputs)
    expected = log_odds(logits, labels, inputs, tail_size, rank, shift)
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)
    # Other examples would have given other means.
    other = scores.OpenMax(tail_size, rank, shift, "log_sum_exp")
    statistics = other.fit(labels, logits=logits)
    apart = actual - np.asarray(other(inputs, **statistics))
    assert np.abs(apart).max() > 0.01


def test_score_of_classes_that_are_taken_for_unknown(rng):
    labels = np.arange(40) % 2
    logits = 4 * np.eye(2)[labels] + 0.1 * rng.standard_normal((40, 2))
    logits[labels == 1] -= 9.0
    with pytest.raises(
        ValueError,
        match="not classified as unknown .* above 0.*class '1' has 0",
    ):
        UnknownClassOpenMax().fit(labels, logits=logits)
    with pytest.raises(
        ValueError, match="tail_size must be a whole number of at least 3"
    ):
        UnknownClassOpenMax(tail_size=2)
