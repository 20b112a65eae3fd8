# SPDX-License-Identifier: Apache-2.0
"""G-OpenMax: Ge et al., "Generative OpenMax for Multi-Class Open Set".

"... Classification", BMVC 2017. A row of Table 1 of the CAC paper. Images are
generated in which the classifier sees no known class, or another than they were
generated for. It learns them as one more class, and the unknown score is that
of OpenMax with this class.

There is no code of the authors. `generator="interpolation"` is the form of
Neal et al. (ECCV 2018), likely the one behind Table 1: images between two
training images in the latent space of an auto-encoder. That its score was
OpenMax, see `scores.UnknownClassOpenMax`, is inferred; that each pair has its
own place between its latents, and that these are not scaled to length 1 again,
is a choice here.

`generator="conditional"` is nearer to the paper: a conditional generator makes
images of mixed classes. Its networks are those of a public re-implementation.
"""

import dataclasses

import numpy as np

from cac_tf import lazy
from cac_tf.methods.generated_unknowns.method import GeneratedUnknowns
from cac_tf.methods.generated_unknowns.recipe import GeneratedUnknownsRecipe
from cac_tf.methods.method import register
from cac_tf.methods.recipe import field
from cac_tf.training import Stage

conditional_gan = lazy.module("cac_tf.methods.g_openmax.conditional_gan")
generated_images = lazy.module("cac_tf.methods.g_openmax.generated_images")
conditional_networks = lazy.module(
    "cac_tf.methods.g_openmax.conditional_networks"
)

# Of the re-implementation that the conditional generator is from.
_CONDITIONAL_LEARNING_RATE = 2e-4
# At most so many images are looked at to see whether a generator collapsed.
_LOOKED_AT = 256


@dataclasses.dataclass(frozen=True)
class Recipe(GeneratedUnknownsRecipe):
    """How G-OpenMax generates images, besides the rest."""

    generator: str = field(
        "interpolation",
        "interpolation: images between two training images, in an "
        "auto-encoder's latent space (Neal et al.'s code). conditional: images "
        "of mixed classes (nearer to the paper of G-OpenMax); its own learning "
        "rate is 2e-4.",
        choices=("interpolation", "conditional"),
    )
    largest_known_probability: float = field(
        0.5,
        "Interpolated images are kept if no known class has a larger "
        "probability.",
        above=0,
        at_most=1,
    )

    @classmethod
    def of_preset(cls, preset, given):
        if given.get("generator") == "conditional":
            rate = preset.get("gan_learning_rate", _CONDITIONAL_LEARNING_RATE)
            given = {"gan_learning_rate": rate, **given}
        return super().of_preset(preset, given)

    @property
    def unused(self):
        found = super().unused
        if self.generator == "conditional":
            others = (
                "adversarial_weight",
                "gradient_penalty",
                "penalty_norm",
                "largest_known_probability",
            )
            found = {**found, **dict.fromkeys(others, "generator=conditional")}
        return found


class GOpenMax(GeneratedUnknowns):
    """Generated images that look like no known class, as one more class."""

    name = "g_openmax"
    recipe = Recipe
    scores = ("unknown_class_openmax", "unknown_class", "max_softmax")

    def train_generator(self, dataset, recipe, run):
        if recipe.generator == "interpolation":
            return super().train_generator(dataset, recipe, run)
        gan = conditional_gan.ConditionalGAN(
            dataset.image_shape,
            len(dataset.class_names),
            width=recipe.gan_width,
            seed=run.seed,
        )
        gan.compile(recipe.adam(recipe.gan_learning_rate))
        run.fit(
            gan,
            dataset.train,
            stages=[Stage(recipe.gan_epochs)],
            batch_size=recipe.gan_batch_size,
            name="conditional_gan",
            samples=gan.samples_of(),
        )
        images, labels = dataset.train
        gan.check_not_collapsed(
            images[:_LOOKED_AT], labels[:_LOOKED_AT], dataset.class_names
        )
        return gan

    def unknowns(self, model, generator, dataset, recipe, rng):
        if recipe.generator == "interpolation":
            inputs = _between_training_images(
                generator.encoder, dataset, recipe, rng
            )
            largest = recipe.largest_known_probability
            seen = f"a known class has a probability of {largest:g} or more"
            others = ", or largest_known_probability"

            def is_unknown(logits):
                return generated_images.shows_no_class(logits, largest)

        else:
            inputs = _of_mixed_classes(dataset, recipe, rng)
            seen = "the classifier sees the class that it was generated for"
            others = ""

            def is_unknown(logits):
                return generated_images.shows_another_class(logits, inputs[1])

        classified = generated_images.ClassifiedImages(
            generator.generator,
            model.preprocessing,
            model.backbone,
            in_training_mode=recipe.generation_mode == "training",
        )
        images, logits = classified.predict(
            inputs, batch_size=recipe.gan_batch_size, verbose=0
        )
        kept = images[is_unknown(logits)]
        if not len(kept):
            raise ValueError(
                f"None of the {len(images)} generated images is of use as "
                f"unknown: in each, {seen}. Raise generated_unknowns{others}, "
                "or lower epochs for a classifier that is less certain."
            )
        return kept


def _between_training_images(encoder, dataset, recipe, rng):
    """Latents at a random place between those of two training images."""
    count = recipe.generated_unknowns
    latents = [
        encoder.predict(
            np.float32(dataset.train.images[rows]) / 255.0,
            batch_size=recipe.gan_batch_size,
            verbose=0,
        )
        for rows in rng.integers(dataset.train.size, size=(2, count))
    ]
    return generated_images.interpolated(*latents, rng.random(count))


def _of_mixed_classes(dataset, recipe, rng):
    """Noise and random class vectors."""
    count = recipe.generated_unknowns
    noise = rng.standard_normal((count, conditional_networks.NOISE))
    return [
        np.float32(noise),
        generated_images.random_class_vectors(
            count, len(dataset.class_names), rng
        ),
    ]


register(GOpenMax())
