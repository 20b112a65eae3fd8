# SPDX-License-Identifier: Apache-2.0
"""C2AE: Oza and Patel, "Class Conditioned Auto-Encoder", CVPR 2019.

A row of Table 1 of the CAC paper. This is our re-implementation: the authors'
code cannot be had, and no other known to us gives their figures.

A classifier is trained first (the paper's closed-set training). Then its
encoder is frozen, and a decoder learns to reconstruct an image as its own
class, and to make an image of another class as that class (open-set training).
The unknown score is the smallest error of the reconstructions as all K classes
(open-set testing by k-inference). The equations are in the docstrings of
`layers.ClassConditionedReconstruction` and
`conditioned_training.DecoderTraining`.

Where it differs from the paper: the decoder is like that of Neal et al. (ECCV
2018), see `reconstruction.image_networks`;
errors are means over pixels in [0, 1], not sums; with `preset="fair"`, the
classifier is trained with augmentation (the decoder never is: on augmented
digits it reconstructed validation images much worse). The threshold is
calibrated like that of every score; with `threshold="extreme_values"` it is the
paper's, from generalized Pareto distributions
(`extreme_values.extreme_value_threshold`). `preset="paper"` has the learning
rate of re-implementations, and the 30 epochs of the code of Neal et al.
"""

import dataclasses
import functools

from cac_tf import lazy
from cac_tf import losses
from cac_tf.methods.method import register
from cac_tf.methods.published_recipe import PublishedRecipe
from cac_tf.methods.recipe import field
from cac_tf.methods.supervised import SupervisedMethod
from cac_tf.training import Stage

extreme_values = lazy.module("cac_tf.methods.c2ae.extreme_values")
conditioned = lazy.module("cac_tf.methods.c2ae.conditioned_training")
reconstruction = lazy.module("cac_tf.methods.reconstruction.training")

# scikit-learn's digits are few and small. Chosen by how much better validation
# images of trial 0 are reconstructed as their own class than as another.
_DIGITS = {
    "decoder_epochs": 60,
    "decoder_learning_rate": 1e-3,
    "decoder_width": 32,
}


@dataclasses.dataclass(frozen=True)
class Recipe(PublishedRecipe):
    """The classifier's recipe and that of its decoder."""

    match_weight: float = field(
        0.9,
        "Weight alpha of reconstructing an image as its own class; "
        "reconstructing it as another class has weight 1 - alpha.",
        at_least=0,
        at_most=1,
    )
    decoder_epochs: int = field(
        30, "Epochs for training the decoder.", at_least=1, at_most=10**6
    )
    decoder_learning_rate: float = field(
        3e-4, "Learning rate of the decoder (Adam).", above=0, at_most=1000
    )
    decoder_batch_size: int = field(
        64,
        "Batch size for training the decoder; the other images in a batch "
        "serve as examples of other classes.",
        at_least=2,
        at_most=10**6,
    )
    decoder_width: int = field(
        64,
        "An eighth of the number of filters in the decoder's first layer.",
        at_least=1,
    )

    threshold: str = field(
        "accepted_share",
        "accepted_share: the threshold accepts a fraction of the known "
        "validation images, as with all methods. extreme_values: the "
        "threshold minimizes the probability of a wrong decision, estimated "
        "from the tails of the errors (C2AE's paper).",
        choices=("accepted_share", "extreme_values"),
    )

    @classmethod
    def published(cls):
        return {
            **super().published(),
            "algorithm": "adam",
            "learning_rate": 3e-4,
            "threshold": "extreme_values",
        }

    @property
    def unused(self):
        found = super().unused
        if self.threshold == "extreme_values":
            found = {
                **found,
                "true_positive_rate": "threshold=extreme_values",
            }
        return found


class C2AE(SupervisedMethod):
    """A classifier, and a decoder conditioned on the class."""

    name = "c2ae"
    recipe = Recipe
    digits = _DIGITS
    scores = ("min_reconstruction_error", "max_softmax", "max_logit")
    takes_several_devices = False

    def loss(self, recipe):
        return losses.CrossEntropyLoss()

    def backbone(self, dataset, recipe, run):
        return conditioned.with_reconstructions(
            super().backbone(dataset, recipe, run),
            dataset.channel_statistics,
            width=recipe.decoder_width,
            seed=run.seed,
        )

    def train(self, dataset, recipe, run):
        if recipe.threshold == "extreme_values":
            extreme_values.check_enough(dataset.validation.size)
        parts = self.parts(dataset, recipe, run)
        classifier = parts.classifier()
        self.fit_classifier(classifier, dataset, recipe, run)
        training = conditioned.DecoderTraining(
            parts, recipe.match_weight, seed=run.seed
        )
        with training.learning():
            training.compile(recipe.adam(recipe.decoder_learning_rate))
            run.fit(
                training,
                dataset.train,
                stages=[Stage(recipe.decoder_epochs)],
                batch_size=recipe.decoder_batch_size,
                name="decoder",
                samples=functools.partial(
                    reconstruction.reconstructed, classifier
                ),
            )
        return classifier

    def calibrate(self, model, dataset, recipe, true_positive_rate):
        if recipe.threshold == "accepted_share":
            super().calibrate(model, dataset, recipe, true_positive_rate)
            return
        errors = extreme_values.errors_of(model, dataset.validation)
        model.threshold = extreme_values.extreme_value_threshold(*errors)

    def check(self, recipe, dataset_name, tta, score):
        super().check(recipe, dataset_name, tta, score)
        if recipe.threshold == "extreme_values" and score != self.scores[0]:
            raise ValueError(
                "threshold=extreme_values works only with "
                f"score={self.scores[0]}; got score={score}. Choose "
                "threshold=accepted_share."
            )


register(C2AE())
