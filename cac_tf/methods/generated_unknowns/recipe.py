# SPDX-License-Identifier: Apache-2.0
"""The recipe of methods that generate unknown images to train on."""

import dataclasses
from typing import Any
from typing import ClassVar

from cac_tf.methods.published_recipe import PublishedRecipe
from cac_tf.methods.recipe import field


@dataclasses.dataclass(frozen=True)
class GeneratedUnknownsRecipe(PublishedRecipe):
    """How classifier, generator and the class "unknown" are trained."""

    BETA_1: ClassVar[float] = 0.5

    gan_epochs: int = field(
        30, "Epochs for training the generator.", at_least=1
    )
    gan_learning_rate: float = field(
        1e-4,
        "Learning rate of encoder, generator and discriminator (Adam).",
        above=0,
        at_most=1000,
    )
    gan_batch_size: int = field(
        64, "Batch size for training the generator.", at_least=2
    )
    gan_width: int = field(
        64,
        "Filters of the first convolution of encoder and discriminator.",
        at_least=1,
    )
    gan_dropout: float = field(
        0.2,
        "Fraction of channels dropped after each block of encoder and "
        "discriminator, in [0, 1).",
        at_least=0,
        below=1,
    )
    adversarial_weight: float = field(
        0.01, "Weight of the discriminator in the generator's loss.", at_least=0
    )
    gradient_penalty: float = field(
        10.0, "Weight of the discriminator's gradient penalty.", at_least=0
    )
    penalty_norm: str = field(
        "image",
        "Which gradients the penalty pulls to length 1: image, the gradient "
        "of a whole image (Gulrajani et al.); pixel, that of each pixel, for "
        "a sum of as many logits as there are classes, only one of which is "
        "used as the critic (Neal et al.'s code).",
        choices=("image", "pixel"),
    )
    generated_unknowns: int = field(
        3200,
        "Number of unknown images to generate, at most the number of "
        "training images.",
        at_least=1,
        at_most=10**6,
    )
    generation_mode: str = field(
        "evaluation",
        "Whether dropout and batch normalization of generator and classifier "
        "(osrci: also of the encoder) run in evaluation or in training mode "
        "(Neal et al.'s code) while unknown images are generated.",
        choices=("evaluation", "training"),
    )
    unknown_class_epochs: int = field(
        3,
        'Epochs for training with the class "unknown".',
        at_least=1,
        at_most=10**6,
    )
    unknown_class_learning_rate: float = field(
        1e-5,
        'Learning rate for training with the class "unknown" (Adam).',
        above=0,
        at_most=1000,
    )

    def discriminator_outputs(self, num_classes: int) -> int:
        """Number of logits of the discriminator; see `penalty_norm`."""
        return num_classes if self.penalty_norm == "pixel" else 1

    @classmethod
    def published(cls) -> dict[str, Any]:
        return {
            **super().published(),
            # The defaults of the other fields are those of that code too.
            "penalty_norm": "pixel",
            "generation_mode": "training",
        }
