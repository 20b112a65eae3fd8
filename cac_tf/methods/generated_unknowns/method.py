# SPDX-License-Identifier: Apache-2.0
"""The common course of methods that generate unknown images to train on."""

import dataclasses
import os

import numpy as np

from cac_tf import atomic_files
from cac_tf import lazy
from cac_tf import losses
from cac_tf.data import Examples
from cac_tf.data.streamed_images import StreamedImages
from cac_tf.labels import UNKNOWN
from cac_tf.methods.generated_unknowns.recipe import GeneratedUnknownsRecipe
from cac_tf.methods.supervised import SupervisedMethod
from cac_tf.training import Stage
from cac_tf.training.pictures import PICTURES_IN_A_ROW

keras = lazy.module("keras")
outputs = lazy.module("cac_tf.methods.generated_unknowns.outputs")
trainings = lazy.module("cac_tf.training.classifier_training")
networks = lazy.module(
    "cac_tf.methods.generated_unknowns.adversarial_auto_encoder"
)

# At most so many images are looked at to see whether a generator collapsed.
LOOKED_AT = 256

# For scikit-learn's digits: networks that fit into four minutes on two cores,
# and learning rates for as few steps as 605 images give. (With the published
# ones, the weights would hardly move.) Chosen before any test images were
# looked at, and not tuned on them.
_DIGITS = {
    "gan_epochs": 40,
    "gan_learning_rate": 1e-3,
    "gan_width": 16,
    "unknown_class_epochs": 10,
    "unknown_class_learning_rate": 1e-4,
}


class GeneratedUnknowns(SupervisedMethod):
    """A classifier, generated images of no class, and a class "unknown".

    1. The classifier learns the known classes, with one logistic loss for each
       (`losses.OneVsAllLoss`), using the recipe shared by all methods.
    2. A generator of images is trained, by default an
       `AdversarialAutoEncoder`.
    3. `unknowns` generates images of no known class.
    4. The classifier continues with one additional class
       (`losses.UnknownClassLoss`), on the known images and as many generated
       ones, which are repeated as needed.

    The published code trains 1 and 2 in one loop. No gradient passes from one
    to the other, so the order affects only the random numbers. Known and
    generated images share batches here, so batch normalization sees both.

    A subclass defines `unknowns`, and may define `train_generator`.
    """

    recipe = GeneratedUnknownsRecipe
    digits = _DIGITS
    # The discriminator compares images of a batch.
    takes_several_devices = False

    def loss(self, recipe):
        return losses.OneVsAllLoss()

    def unknowns(self, parts, generator, dataset, recipe, rng):
        """Generates images of no known class.

        Args:
            parts: `models.ImageParts` of the classifier, trained on known
                classes.
            generator: what `train_generator` returned.
            dataset: `OpenSetDataset`.
            recipe: of this method's recipe class.
            rng: `numpy.random.Generator`, for what is chosen.

        Returns:
            (n, H, W, C) float32 images in [0, 1], n at least 1; and (n,) the
            positions of the training images that they are made of, or None.

        Raises:
            ValueError: there are none; the message says what to change.
        """
        raise NotImplementedError

    def train(self, dataset, recipe, run):
        parts = self.parts(dataset, recipe, run)
        classifier = parts.classifier()
        self.fit_classifier(classifier, dataset, recipe, run)
        generator = self.train_generator(dataset, recipe, run)
        images = self.kept_unknowns(parts, generator, dataset, recipe, run)
        training = trainings.ClassifierTraining(classifier)
        training.compile(
            recipe.adam(recipe.unknown_class_learning_rate),
            losses.UnknownClassLoss(),
            [self.accuracy()],
        )
        run.fit(
            training,
            _with_unknowns(dataset.train, images),
            dataset.validation,
            stages=[Stage(recipe.unknown_class_epochs)],
            # As in the published codes, a step has that many images of each,
            # here on average.
            batch_size=2 * recipe.batch_size,
            name="unknown_class",
        )
        return classifier

    def kept_unknowns(self, parts, generator, dataset, recipe, run):
        """What `unknowns` gave, now or before an interruption.

        Raises:
            FloatingPointError: they hold NaN or infinity.
        """
        path = os.path.join(run.checkpoints, "generated_unknowns.npy")
        if os.path.exists(path):
            return np.load(path)
        rng = np.random.default_rng([run.seed, 1])
        # The classifier would see no more than these.
        count = min(recipe.generated_unknowns, dataset.train.size)
        recipe = dataclasses.replace(recipe, generated_unknowns=count)
        images, origins = self.unknowns(parts, generator, dataset, recipe, rng)
        check_finite(images)
        run.keep_pictures(
            "generated_unknowns",
            _taken_for(images, parts, dataset.class_names)
            if origins is None
            else _beside_origins(images, origins, dataset),
        )
        with atomic_files.replacing(path) as temporary:
            np.save(temporary, images)
        return images

    def train_generator(self, dataset, recipe, run):
        """The generator's training.

        Args:
            dataset, recipe, run: as of `train`.

        Returns:
            `AdversarialAutoEncoder`, trained.

        Raises:
            FloatingPointError: its loss became NaN or infinite.
            ValueError: the generator makes one image of everything.
        """
        auto_encoder = networks.AdversarialAutoEncoder(
            dataset.image_shape,
            width=recipe.gan_width,
            dropout=recipe.gan_dropout,
            adversarial_weight=recipe.adversarial_weight,
            penalty_weight=recipe.gradient_penalty,
            penalty_norm=recipe.penalty_norm,
            outputs=recipe.discriminator_outputs(len(dataset.class_names)),
            seed=run.seed,
        )
        auto_encoder.compile(recipe.adam(recipe.gan_learning_rate))
        run.fit(
            auto_encoder,
            dataset.train,
            stages=[Stage(recipe.gan_epochs)],
            batch_size=recipe.gan_batch_size,
            name="auto_encoder",
            samples=auto_encoder.samples,
        )
        images, _ = dataset.train.evenly_spaced(LOOKED_AT)
        auto_encoder.check_not_collapsed(images)
        return auto_encoder


def check_finite(images):
    """Raises FloatingPointError if generated images hold NaN or infinity."""
    is_finite = np.isfinite(images).all(axis=(1, 2, 3))
    if not is_finite.all():
        raise FloatingPointError(
            f"{int((~is_finite).sum())} of the {len(images)} generated images "
            "contain NaN or infinity. Lower gan_learning_rate, or "
            "search_speed and distance_weight if the method has a search."
        )


def logits_of(parts, images):
    """(n, N) logits of a classifier, for images in [0, 1].

    Args:
        parts: `models.ImageParts`.
        images: (n, H, W, C).
    """
    network = keras.Sequential([parts.normalize, parts.network])
    return np.float32(outputs.outputs_of(network, images))


def _beside_origins(images, origins, dataset):
    """Some images of each class, and the training images that they are of."""
    labels, rows = np.asarray(dataset.train.labels)[origins], {}
    for index, name in enumerate(dataset.class_names):
        shown = np.flatnonzero(labels == index)[:PICTURES_IN_A_ROW]
        if len(shown):
            training = dataset.train.images[origins[shown]]
            rows[f"{name}: training images"] = training
            rows[f"{name}: generated from them"] = 255.0 * images[shown]
    return rows


def _taken_for(images, parts, class_names):
    """Some images of each class whose logit is the largest."""
    class_id = logits_of(parts, images).argmax(axis=-1)
    pixels = 255.0 * images
    return {
        f"taken for {name}": pixels[class_id == index][:PICTURES_IN_A_ROW]
        for index, name in enumerate(class_names)
        if (class_id == index).any()
    }


def _with_unknowns(train, images):
    """Training images, followed by as many generated ones, labelled -1."""
    images = np.rint(255.0 * np.clip(images, 0.0, 1.0))
    rows = np.arange(train.size) % len(images)
    unknown = np.full(train.size, UNKNOWN)
    if isinstance(train.images, StreamedImages):
        made = train.images.of_array(images)
        # Looked at before they are repeated, each is looked at once.
        _ = made.facts
        return train.joined(Examples(made.subset(rows), unknown))
    # Made once: these may be some gigabytes.
    whole = np.empty(
        (2 * train.size, *images.shape[1:]), dtype=train.images.dtype
    )
    whole[: train.size] = train.images
    images = images.astype(whole.dtype)
    np.take(images, rows, axis=0, out=whole[train.size :], mode="clip")
    return Examples(whole, np.r_[train.labels, unknown])
