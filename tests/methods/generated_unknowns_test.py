# SPDX-License-Identifier: Apache-2.0
"""Losses, gradients and searches against NumPy, on tiny networks."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from cac_tf import experiments
from cac_tf import methods
from cac_tf import scores
from cac_tf.data import Examples
from cac_tf.data import image_facts
from cac_tf.data import load_open_set_dataset
from cac_tf.data import streamed_images
from cac_tf.data.image_file import png_bytes
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.losses.unknown_class import unknown_class_loss
from cac_tf.methods.g_openmax import conditional_networks
from cac_tf.methods.generated_unknowns import adversarial_auto_encoder as gan
from cac_tf.methods.generated_unknowns import gradients
from cac_tf.methods.generated_unknowns import image_networks
from cac_tf.methods.generated_unknowns import method
from cac_tf.methods.osrci import counterfactuals
from cac_tf.methods.reconstruction import image_networks as reconstruction
from cac_tf.models.image_classifier import image_parts
from cac_tf.training.run import TrainingRun
from cac_tf.training.runtime import Runtime
from tests import execution
from tests.methods.conftest import train
from tests.methods.killed_training import check_resume
from tests.oracle import central_differences

SHAPE = (2, 2, 3)


def one_more_class(logits):
    return special.softmax(np.pad(logits, ((0, 0), (0, 1))), axis=1)


def test_loss_and_score_of_the_unknown_class(rng):
    logits = np.float32(3 * rng.standard_normal((6, 4)))
    labels = np.array([0, -1, 3, 2, -1, 1])
    p = one_more_class(np.float64(logits))
    # In NumPy too, -1 is the last class.
    expected = -np.log(p[np.arange(6), labels])
    actual = unknown_class_loss(labels, logits)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert np.isnan(np.asarray(unknown_class_loss([4], logits[:1])))
    score = scores.get("unknown_class").of_arrays(logits)
    np.testing.assert_allclose(
        score, p[:, -1] - p[:, :-1].max(axis=1), rtol=1e-5, atol=1e-6
    )


def test_adversarial_losses(rng):
    real, fake, again = rng.standard_normal((3, 5, 1)) * 3
    judge, generator = gan.adversarial_losses(
        *map(np.float32, (real, fake, again)), weight=0.3
    )
    expected = np.log1p(np.exp(fake)).mean()
    expected += 0.3 * np.log1p(np.exp(-real)).mean()
    np.testing.assert_allclose(judge, expected, rtol=1e-5)
    np.testing.assert_allclose(generator, -0.3 * again.mean(), rtol=1e-5)


@pytest.fixture(params=[1, 3])
def judge(rng, request):
    """A network of one logit or several, and its equation in NumPy."""
    network = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Flatten(),
            keras.layers.Dense(7, activation="tanh"),
            keras.layers.Dense(request.param),
        ]
    )
    for variable in network.weights:
        variable.assign(rng.standard_normal(variable.shape))
    weights = [np.float64(w) for w in network.get_weights()]

    def of_numpy(images, kernel=weights[0]):
        hidden = np.tanh(images.reshape(len(images), -1) @ kernel + weights[1])
        return hidden @ weights[2] + weights[3]

    return network, of_numpy


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="about its graphs"
)
def test_no_variable_changes_before_the_last_gradient():
    import tensorflow as tf

    variables = [keras.Variable(0.0) for _ in range(2)]
    optimizer = gradients.all_gradients_first(keras.optimizers.SGD(1.0))
    optimizer.build(variables)

    @tf.function(input_signature=[tf.TensorSpec([])] * 2)
    def step(one, other):
        optimizer.apply([one, other], variables)

    def before(op, output=0):
        """Names of what an operation waits for when the graph is optimized."""
        inputs = list(op.inputs)
        if op.type == "IdentityN":  # Taken apart.
            inputs = [inputs[output]]
        found = {op.name}
        for tensor in inputs:
            found |= before(tensor.op, tensor.value_index)
        return found.union(*map(before, op.control_inputs))

    graph = step.get_concrete_function().graph
    changes = [
        op for op in graph.get_operations() if op.type == "AssignSubVariableOp"
    ]
    assert len(changes) == 2
    for change in changes:
        assert before(change) >= {"one", "other"}


def penalty_of(function, images, norm):
    """Equation 3 of Gulrajani et al., by finite differences."""
    slopes = central_differences(lambda x: function(x).sum(), images)
    axes = {"image": (1, 2, 3), "pixel": (3,)}[norm]
    return np.mean((np.sqrt((slopes**2).sum(axis=axes)) - 1.0) ** 2)


@pytest.mark.parametrize("norm", ("image", "pixel"))
def test_gradient_penalty_and_its_gradient(judge, rng, norm, mode):
    network, of_numpy = judge
    images = rng.uniform(size=(3, *SHAPE))
    kernel = network.weights[0]
    at = np.float64(kernel.numpy())

    def penalty(value):
        others = list(network.weights[1:])
        return gan.gradient_penalty(
            network, np.float32(images), [(kernel, value), *others], norm
        )

    actual = execution.compiled(penalty, mode)(np.float32(at))
    np.testing.assert_allclose(
        actual, penalty_of(of_numpy, images, norm), rtol=1e-4
    )
    # What the training follows: the gradient's gradient, by the weights.
    direction = rng.standard_normal(at.shape)
    step = 1e-4
    ends = [
        penalty_of(
            lambda x, kernel=at + sign * step * direction: of_numpy(x, kernel),
            images,
            norm,
        )
        for sign in (-1, 1)
    ]
    gradient = execution.gradient(penalty, mode)(np.float32(at))
    np.testing.assert_allclose(
        (gradient * direction).sum(), np.diff(ends)[0] / (2 * step), rtol=1e-3
    )


def test_no_gradient_reaches_a_frozen_network(judge, rng):
    network, _ = judge
    images = np.float32(rng.uniform(size=(3, *SHAPE)))
    column = images[:, 0, 0, :1]
    layer = keras.layers.Dense(1, use_bias=False)
    layer.build((None, 1))

    def slope(call):
        def value(kernel):
            with keras.StatelessScope(state_mapping=[(layer.kernel, kernel)]):
                # TensorFlow has no gradient by what is not used at all.
                return call(column) + 0.0 * ops.sum(kernel)

        return execution.gradient(value)(np.full((1, 1), 0.5, "float32"))

    np.testing.assert_allclose(slope(layer), column.sum(), rtol=1e-5)
    np.testing.assert_array_equal(
        slope(lambda x: gradients.with_frozen(layer, x)), 0.0
    )
    by_images = execution.gradient(lambda x: gradients.with_frozen(network, x))(
        images
    )
    np.testing.assert_allclose(
        by_images, execution.gradient(network)(images), rtol=1e-5
    )


def auto_encoder(width=2, **changes):
    model = gan.AdversarialAutoEncoder(
        (8, 8, 1), width=width, seed=3, **changes
    )
    # To make the graph takes longer than these few steps.
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def digits():
    return load_open_set_dataset("digits", test_fraction=0.8)


class _Interrupted(Exception):
    pass


class _Look(keras.callbacks.Callback):
    """Keeps the state at the start of the third epoch; may stop there."""

    def __init__(self, stops):
        super().__init__()
        self._stops = stops

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            both = (self.model, self.model.optimizer)
            self.state = [np.array(v) for one in both for v in one.variables]
            if self._stops:
                raise _Interrupted


@pytest.fixture(scope="module")
def resumed(digits, tmp_path_factory):
    """An auto-encoder that was interrupted, and its states then and later."""
    folder = str(tmp_path_factory.mktemp("run") / "checkpoints")
    osrci = methods.get("osrci")
    recipe = osrci.recipe(
        gan_epochs=4, gan_width=8, gan_learning_rate=5e-3, gan_batch_size=8
    )
    small = dataclasses.replace(
        digits, train=Examples(*(a[:64] for a in digits.train))
    )

    def train_until(look):
        run = TrainingRun(Runtime(seed=5), folder, callbacks=lambda *_: [look])
        run.start()
        return osrci.train_generator(small, recipe, run), run

    before, after = _Look(stops=True), _Look(stops=False)
    with pytest.raises(_Interrupted):
        train_until(before)
    model, run = train_until(after)
    assert len(run.history) == 4
    return model, before.state, after.state


@pytest.fixture
def trained(resumed):
    """An auto-encoder whose images differ."""
    return resumed[0]


def test_the_generator_goes_on_where_it_was_interrupted(resumed):
    _, before, after = resumed
    # Weights, running means, momenta, and the states of random generators.
    assert len(before) > 200
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*still classified as a known class")
@pytest.mark.filterwarnings("ignore:These classes keep")
def test_osrci_goes_on_where_it_was_interrupted(
    digits, network, tmp_path, monkeypatch
):
    """Its images are not generated anew, and its weights are the same."""
    osrci = methods.get("osrci")
    # Two epochs of a tiny generator.
    monkeypatch.setattr(
        gan.AdversarialAutoEncoder, "check_not_collapsed", lambda *_: None
    )
    values = {
        "network": network,
        "epochs": 2,
        "gan_epochs": 2,
        "gan_width": 4,
        "search_steps": 3,
        "generated_unknowns": 16,
        "unknown_class_epochs": 3,
    }

    def train_in(folder, callbacks):
        if callbacks is None:
            monkeypatch.setattr(type(osrci), "unknowns", None)
        folder.mkdir(exist_ok=True)
        kept = folder / "kept"
        return train("osrci", digits, kept, values, callbacks=callbacks)

    check_resume(train_in, "unknown_class", 1, tmp_path)


def test_what_the_discriminator_learns_is_kept_from_the_others(digits):
    images = digits.train.images[:16]
    one, other = auto_encoder(), auto_encoder(penalty_weight=0.0)
    before = [w.copy() for w in one.generator.get_weights()]
    for model in (one, other):
        model.train_on_batch(images, np.zeros(16))
    for part in ("encoder", "generator"):
        for a, b in zip(
            getattr(one, part).get_weights(),
            getattr(other, part).get_weights(),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(before[0], one.generator.get_weights()[0])
    assert not np.allclose(
        one.discriminator.get_weights()[0], other.discriminator.get_weights()[0]
    )


def test_one_logit_judges_and_the_penalty_is_of_all(digits):
    images = digits.train.images[:16]
    changed = {}
    for weight in (0.0, 10.0):
        model = auto_encoder(
            outputs=3, penalty_norm="pixel", penalty_weight=weight
        )
        kernel = model.discriminator.get_layer("logits").kernel
        before = np.array(kernel)
        model.train_on_batch(images, np.zeros(16))
        changed[weight] = np.array(kernel) - before
    alone, penalized = changed[0.0], changed[10.0]
    assert np.abs(alone[:, 0]).max() > 0.0
    np.testing.assert_array_equal(alone[:, 1:], 0.0)
    # The penalty is of the sum, so it moves all in the same way.
    both = penalized[:, 1:]
    assert np.abs(both).max() > 0.0
    np.testing.assert_allclose(both[:, 0], both[:, 1], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(
        penalized[:, 0] - alone[:, 0], both[:, 0], rtol=1e-3, atol=1e-6
    )


def test_the_discriminator_starts_as_in_the_published_code():
    network = image_networks.discriminator((32, 32, 1), 16, 0.2, 0)
    kernel = np.array(network.get_layer("logits").kernel)
    # U(-b, b), of `torch.nn.Linear`.
    bound = 1 / np.sqrt(len(kernel))
    assert np.abs(kernel).max() <= bound
    np.testing.assert_allclose(kernel.std(), bound / np.sqrt(3), rtol=0.1)
    first = np.array(network.get_layer("conv1").kernel)
    np.testing.assert_allclose(first.std(), 0.05, rtol=0.2)


def test_latents_have_length_one_in_each_chunk(digits):
    model = auto_encoder()
    images = np.float32(digits.train.images[:5]) / 255
    for latents in (model.encoder(images), model.latent_noise(5)):
        chunks = np.asarray(latents).reshape(5, -1, image_networks.CHUNK)
        np.testing.assert_allclose(
            np.linalg.norm(chunks, axis=-1), 1.0, rtol=1e-5
        )
    # Also of sizes that do not divide by eight.
    odd = gan.AdversarialAutoEncoder((13, 20, 3), width=2, seed=0)
    assert odd(np.zeros((2, 13, 20, 3))).shape == (2, 13, 20, 3)
    assert odd.latent_width == 2 * 3 * image_networks.CHUNK


def test_a_generator_that_collapsed_or_diverged(digits, trained):
    images = digits.train.images[:32]
    trained.check_not_collapsed(images)
    model = auto_encoder()
    with pytest.raises(ValueError, match="collapsed.*Raise gan_epochs"):
        model.check_not_collapsed(images)
    model.compile(keras.optimizers.SGD(1e30), run_eagerly=True)
    with pytest.raises(FloatingPointError, match="Lower gan_learning_rate"):
        model.fit(images, np.zeros(32), batch_size=8, epochs=3, verbose=0)


WIDTH = image_networks.CHUNK


@pytest.fixture
def linear(rng):
    """Encoder, generator and classifier; the latter two also in NumPy."""

    def network(inputs, width, shape):
        layer = keras.layers.Dense(width)
        model = keras.Sequential(
            [
                keras.Input(inputs),
                keras.layers.Flatten(),
                layer,
                keras.layers.Reshape(shape),
            ]
        )
        layer.kernel.assign(rng.standard_normal(layer.kernel.shape) / 2)
        return model, np.float64(layer.kernel.numpy())

    encoder, _ = network(SHAPE, WIDTH, [WIDTH])
    generator, one = network([WIDTH], 12, SHAPE)
    classifier, two = network(SHAPE, 4, [4])
    return encoder, generator, classifier, one @ two


def numpy_losses(z, start, logits, weight, distance, step):
    axis = None if step == "batch" else -1
    apart = (
        ((z - start) ** 2).sum(axis=-1)
        if distance == "squared"
        else (z.mean(axis=axis) - start.mean(axis=axis)) ** 2
    )
    return -np.log(one_more_class(logits)[:, -1]) + weight * apart


def of_unit_length(z, length):
    chunks = z.reshape(len(z), -1, length)
    chunks = chunks / np.linalg.norm(chunks, axis=-1, keepdims=True)
    return chunks.reshape(z.shape)


@pytest.mark.parametrize("distance", ("squared", "means"))
@pytest.mark.parametrize("step", ("image", "batch"))
def test_steps_in_latent_space(linear, rng, distance, step):
    *networks, product = linear
    # The released code has four spheres whatever the latents' width is.
    length = WIDTH // 4 if step == "batch" else WIDTH
    start = of_unit_length(rng.standard_normal((3, WIDTH)), length)

    def search(steps):
        return counterfactuals.CounterfactualSearch(
            *networks[:2],
            None,
            networks[2],
            steps=steps,
            distance_weight=0.7,
            distance=distance,
            step=step,
        )

    def losses_at(z):
        return numpy_losses(z, start, z @ product, 0.7, distance, step)

    z = start
    for _ in range(3):
        last = losses_at(z)
        if step == "batch":
            # Half the square of the batch's loss descends.
            slope = central_differences(
                lambda z: losses_at(z).mean() ** 2 / 2, z
            )
        else:
            slope = central_differences(lambda z: losses_at(z).sum(), z)
        z = of_unit_length(z - 0.1 * slope, length)
    latents, values = search(3).search(ops.convert_to_tensor(np.float32(start)))
    np.testing.assert_allclose(latents, z, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values, last, rtol=1e-4)
    assert losses_at(z).mean() < losses_at(start).mean()


def test_the_paper_s_distance_binds_and_the_code_s_does_not(linear, rng):
    images = rng.uniform(0, 255, (8, *SHAPE))
    moved = {}
    for distance in ("squared", "means"):
        search = counterfactuals.CounterfactualSearch(
            *linear[:2], None, linear[2], distance=distance, distance_weight=5.0
        )
        start = search.unit(search.start(images))
        latents, _ = search.search(start)
        moved[distance] = np.linalg.norm(latents - start, axis=1).mean()
    assert moved["squared"] < 0.5 * moved["means"]


def test_a_search_leaves_the_networks_as_they_are(digits, trained):
    model = trained
    classifier = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(4),
        ]
    )
    before = [np.array(v) for v in (*model.variables, *classifier.variables)]
    made = {}
    for training in (False, True, True):
        search = counterfactuals.CounterfactualSearch(
            model.encoder,
            model.generator,
            None,
            classifier,
            steps=5,
            in_training_mode=training,
        )
        images = search.predict(digits.train.images[:8], verbose=0)
        if training in made:
            np.testing.assert_allclose(images, made[training], atol=1e-5)
        made[training] = images
    assert not np.allclose(made[False], made[True])
    after = [*model.variables, *classifier.variables]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, np.array(other))


def test_generated_images_join_training_images(digits, rng, monkeypatch):
    images = StreamedImages(
        [png_bytes(image) for image in digits.train.images[:7]], 8, channels=1
    )
    train = Examples(images, digits.train.labels[:7])
    made = np.float32(rng.uniform(0, 1, (3, 8, 8, 1)))
    looked_at = []
    monkeypatch.setattr(
        streamed_images,
        "look_at",
        lambda sources, *options, **others: (
            looked_at.append(len(sources))
            or image_facts.look_at(sources, *options, **others)
        ),
    )
    streamed = method._with_unknowns(train, made)
    # Of four repeated images none is looked at again.
    assert sorted(looked_at) == [3, 7]
    in_memory = method._with_unknowns(digits.train.take(np.arange(7)), made)
    assert in_memory.images.dtype == digits.train.images.dtype
    repeated = np.rint(255 * made)[np.arange(7) % 3]
    for found in (streamed, in_memory):
        np.testing.assert_array_equal(found.images[:7], digits.train.images[:7])
        np.testing.assert_array_equal(found.images[7:], repeated)
        np.testing.assert_array_equal(found.labels[:7], train.labels)
        np.testing.assert_array_equal(found.labels[7:], -1)


def test_counterfactual_images_are_of_all_classes(digits, trained, monkeypatch):
    """Also where the training images are sorted by class."""
    order = np.argsort(digits.train.labels, kind="stable")
    by_class = dataclasses.replace(digits, train=digits.train.take(order))
    seen = []
    monkeypatch.setattr(
        "cac_tf.methods.osrci.outputs.outputs_of",
        lambda search, images, _: seen.append(images) or images / 255.0,
    )
    monkeypatch.setattr(
        "cac_tf.methods.osrci.logits_of",
        lambda parts, images: np.full((len(images), 1), -1.0),
    )
    osrci = methods.get("osrci")
    network = keras.Sequential(
        [
            keras.Input(digits.image_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(6),
        ]
    )
    parts = image_parts(digits.image_shape, [0.0], [1.0], network)
    size = by_class.train.size
    for count in (30, size + 3):
        recipe = osrci.recipe(generated_unknowns=count)
        _, rows = osrci.unknowns(
            parts, trained, by_class, recipe, np.random.default_rng(0)
        )
        assert len(rows) == count
        assert len(set(rows)) == min(count, size)
        assert set(by_class.train.labels[rows]) == set(range(6))
        np.testing.assert_array_equal(seen[-1], by_class.train.images[rows])
    # A search that ended in no numbers, before a classifier looks at it.
    monkeypatch.setattr(
        "cac_tf.methods.osrci.outputs.outputs_of",
        lambda search, images, _: np.full_like(images, np.nan, "float32"),
    )
    with pytest.raises(FloatingPointError, match="or search_speed and dist"):
        osrci.unknowns(
            parts, trained, by_class, recipe, np.random.default_rng(0)
        )


def test_no_more_images_are_generated_than_are_used(
    digits, monkeypatch, tmp_path
):
    osrci, asked = methods.get("osrci"), []

    def unknowns(parts, generator, dataset, recipe, rng):
        asked.append(recipe.generated_unknowns)
        return np.zeros((2, 8, 8, 1), "float32"), np.arange(2)

    monkeypatch.setattr(osrci, "unknowns", unknowns)
    for name, count in (("a", 10**6), ("b", 7)):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        run = TrainingRun(Runtime(seed=0), str(tmp_path / name))
        recipe = osrci.recipe(generated_unknowns=count)
        osrci.kept_unknowns(None, None, digits, recipe, run)
    assert asked == [digits.train.size, 7]


@pytest.mark.parametrize("size", [(32, 32, 3), (12, 12, 1)])
def test_all_layers_compute_in_float32(size, mixed_bfloat16):
    for network in (
        image_networks.encoder(size, 2, 0.2, 0),
        image_networks.discriminator(size, 2, 0.2, 0),
        image_networks.generator(size, 2, 0),
        conditional_networks.generator(size, 3, 2, 0),
        conditional_networks.discriminator(size, 3, 2, 0),
        reconstruction.decoder(20, size, 2, 0),
        reconstruction.decoder(1024, size, 2, 0),
        reconstruction.auto_encoder(size, 20, 2, 0),
    ):
        for layer in network.layers:
            # What holds other layers, or only hands its input on.
            if not isinstance(layer, keras.Model | keras.layers.InputLayer):
                assert layer.compute_dtype == "float32", layer.name


@pytest.mark.parametrize("step", ("image", "batch"))
def test_a_search_in_mixed_precision(step, rng, mixed_bfloat16):
    size = (12, 12, 1)
    search = counterfactuals.CounterfactualSearch(
        image_networks.encoder(size, 2, 0.2, 0),
        image_networks.generator(size, 2, 0),
        None,
        keras.Sequential(
            [
                keras.Input(size),
                keras.layers.Conv2D(2, 3),
                keras.layers.Flatten(),
                keras.layers.Dense(3, dtype="float32"),
            ]
        ),
        steps=3,
        step=step,
        in_training_mode=step == "batch",
    )
    images = search.predict_on_batch(rng.uniform(0, 255, (4, *size)))
    assert images.shape == (4, *size) and images.dtype == "float32"
    assert np.isfinite(images).all()


def test_counterfactual_images_and_their_origins(digits, trained):
    """Those of a search without steps are reconstructions: they look known."""
    osrci = methods.get("osrci")
    recipe = osrci.recipe(
        **{**osrci.preset("digits"), "search_speed": 1e-9, "search_steps": 1},
    )
    recipe = dataclasses.replace(recipe, generated_unknowns=20)
    network = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(6, bias_initializer="ones"),
        ]
    )
    parts = image_parts((8, 8, 1), [0.0], [1.0], network)
    with pytest.warns(UserWarning, match="of the 20 counterfactual images are"):
        images, origins = osrci.unknowns(
            parts, trained, digits, recipe, np.random.default_rng(0)
        )
    again = trained.predict(digits.train.images[origins], verbose=0)
    np.testing.assert_allclose(images, again, atol=1e-4)
    rows = method._beside_origins(images, origins, digits)
    for name, row in rows.items():
        class_id = digits.class_names.index(name.split(":")[0])
        of_class = digits.train.labels[origins] == class_id
        expected = (
            digits.train.images[origins[of_class]]
            if name.endswith("training images")
            else 255 * images[of_class]
        )
        np.testing.assert_allclose(row, expected[:12])
    assert len(rows) == 2 * len(set(digits.train.labels[origins]))


def test_several_devices_are_refused_at_the_start(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("on JAX, several devices are allowed")
    for name in ("osrci", "g_openmax", "c2ae", "gfror"):
        config = experiments.ExperimentConfig(
            {"dataset": "digits"}, method=name
        )
        with pytest.raises(
            ValueError, match=f"{name} trains on only one device"
        ):
            experiments.train(config, tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()
