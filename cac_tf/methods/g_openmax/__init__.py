# SPDX-License-Identifier: Apache-2.0
"""G-OpenMax: Ge et al., "Generative OpenMax for Multi-Class Open Set".

"... Classification", BMVC 2017. A row of Table 1 of the CAC paper. Images are
generated in which the classifier sees no known class, or another than they were
generated for. It learns them as one more class, and the unknown score is that
of OpenMax with this class.

There is no code of the authors. `generator="interpolation"` is the form of
Neal et al. (ECCV 2018), likely the one behind Table 1: images between two
training images in the latent space of an auto-encoder, of which those are kept
that look like no class, until there are enough. That its score was OpenMax, see
`scores.UnknownClassOpenMax`, is inferred. The encoder is in evaluation mode
whatever `generation_mode` says.

`generator="conditional"` is nearer to the paper: a conditional generator makes
images of mixed classes. Its networks and learning rate are those of a public
re-implementation; number of epochs, number of images and OpenMax are those of
the other form.
"""

import dataclasses
import warnings

import numpy as np

from cac_tf import lazy
from cac_tf.methods.generated_unknowns.method import LOOKED_AT
from cac_tf.methods.generated_unknowns.method import GeneratedUnknowns
from cac_tf.methods.generated_unknowns.recipe import GeneratedUnknownsRecipe
from cac_tf.methods.method import register
from cac_tf.methods.recipe import field
from cac_tf.training import Stage

conditional_gan = lazy.module("cac_tf.methods.g_openmax.conditional_gan")
outputs = lazy.module("cac_tf.methods.generated_unknowns.outputs")
generated_images = lazy.module("cac_tf.methods.g_openmax.generated_images")
conditional_networks = lazy.module(
    "cac_tf.methods.g_openmax.conditional_networks"
)

# Of the re-implementation that the conditional generator is from.
_CONDITIONAL_LEARNING_RATE = 2e-4
# So many times as many as wanted are generated at most. (The code of Neal et
# al. goes on until it has enough.)
_MOST_DRAWN = 50


@dataclasses.dataclass(frozen=True)
class Recipe(GeneratedUnknownsRecipe):
    """How G-OpenMax generates images, besides the rest."""

    generator: str = field(
        "interpolation",
        "interpolation: images between two training images, in the latent "
        "space of an autoencoder (Neal et al.'s code). conditional: images "
        "of mixed classes (closer to the G-OpenMax paper); its own learning "
        "rate is 2e-4.",
        choices=("interpolation", "conditional"),
    )
    largest_known_probability: float = field(
        0.5,
        "Interpolated images are kept if the probability of every known "
        "class is below this. With N classes, at least one always has 1/N or "
        "more.",
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
                "gan_dropout",
                "largest_known_probability",
            )
            found = {**found, **dict.fromkeys(others, "generator=conditional")}
        return found


class GOpenMax(GeneratedUnknowns):
    """Generated images that look like no known class, as one more class."""

    name = "g_openmax"
    recipe = Recipe
    scores = ("unknown_class_openmax", "unknown_class", "max_softmax")

    def train(self, dataset, recipe, run):
        smallest = 1.0 / len(dataset.class_names)
        largest = recipe.largest_known_probability
        if recipe.generator == "interpolation" and largest <= smallest:
            raise ValueError(
                f"One of {len(dataset.class_names)} known classes always has "
                f"a probability of {smallest:.4g} or more, so no image would "
                f"be kept. Raise largest_known_probability, now {largest:g}, "
                "above that, or choose generator=conditional."
            )
        return super().train(dataset, recipe, run)

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
            samples=gan.samples,
        )
        images, labels = dataset.train.evenly_spaced(LOOKED_AT)
        gan.check_not_collapsed(images, labels, dataset.class_names)
        return gan

    def unknowns(self, parts, generator, dataset, recipe, rng):
        largest = recipe.largest_known_probability
        if recipe.generator == "interpolation":
            seen = f"a known class has a probability of {largest:g} or more"
            others = "Raise largest_known_probability, or"

            def draw(count):
                return _between_training_images(
                    generator.encoder, dataset, recipe, count, rng
                )

            def is_unknown(logits, inputs):
                return generated_images.shows_no_class(logits, largest)

        else:
            seen = (
                "the classifier recognizes the class that it was generated for"
            )
            others = "You may"

            def draw(count):
                return _of_mixed_classes(len(dataset.class_names), count, rng)

            def is_unknown(logits, inputs):
                return generated_images.shows_another_class(logits, inputs[1])

        classified = generated_images.ClassifiedImages(
            generator.generator,
            parts.normalize,
            parts.network,
            in_training_mode=recipe.generation_mode == "training",
        )
        wanted, drawn, kept = recipe.generated_unknowns, 0, []
        while sum(map(len, kept)) < wanted and drawn < _MOST_DRAWN * wanted:
            inputs = draw(wanted)
            images, logits = outputs.outputs_of(
                classified, inputs, recipe.gan_batch_size
            )
            kept.append(images[is_unknown(logits, inputs)])
            drawn += wanted
        kept = np.concatenate(kept)[:wanted]
        if not len(kept):
            raise ValueError(
                f"None of the {drawn} generated images can serve as unknown: "
                f"in each, {seen}. {others} lower epochs for a classifier "
                "that is less certain."
            )
        if len(kept) < wanted:
            warnings.warn(
                f"Of {drawn} generated images, {len(kept)} can serve as "
                f"unknown, fewer than generated_unknowns={wanted}: in the "
                f"others, {seen}.",
                stacklevel=2,
            )
        return kept, None


def _between_training_images(encoder, dataset, recipe, count, rng):
    """Latents at a random place between those of two training images."""
    size, images = recipe.gan_batch_size, dataset.train.images

    def latents_of(rows):
        # Not of all at once, which would be nine bytes a value.
        parts = (rows[i : i + size] for i in range(0, count, size))
        return np.concatenate(
            [
                encoder.predict_on_batch(np.float32(images[part]) / 255.0)
                for part in parts
            ]
        )

    pairs = rng.integers(0, dataset.train.size, size=(2, count))
    latents = [latents_of(rows) for rows in pairs]
    return generated_images.interpolated(*latents, rng.random(count))


def _of_mixed_classes(num_classes, count, rng):
    """Noise and random class vectors."""
    noise = rng.standard_normal((count, conditional_networks.NOISE))
    return [
        np.float32(noise),
        generated_images.random_class_vectors(count, num_classes, rng),
    ]


register(GOpenMax())
