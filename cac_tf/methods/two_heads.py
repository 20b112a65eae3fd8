# SPDX-License-Identifier: Apache-2.0
"""CAC and cross-entropy on the same features, each with a head of its own.

No row of the paper. Of the authors' released weights, those of cross-entropy
separate the unknown images of CIFAR+ better and those of CAC the ones of MNIST
(docs/benchmarks_scores.md). Here both losses train one backbone, and the score
adds what both heads say.
"""

from cac_tf import lazy
from cac_tf import losses
from cac_tf.methods import cac
from cac_tf.methods.method import register

features = lazy.module("cac_tf.models.features")
network_parts = lazy.module("cac_tf.models.networks.network_parts")


class TwoHeads(cac.ClassAnchorClustering):
    """The CAC loss on one head plus cross-entropy on another.

    The classes are those of the CAC head.
    """

    name = "two_heads"
    scores = ("two_heads", "gamma", "max_logit")

    def loss(self, recipe):
        return [
            super().loss(recipe),
            {"second_logits": losses.CrossEntropyLoss()},
        ]

    def backbone(self, dataset, recipe, run, input_shape=None):
        network = super().backbone(dataset, recipe, run, input_shape)
        with_features, last = features.with_features(network)
        second = network_parts.logits_layer(
            last.units,
            network_parts.l2_penalty(recipe.weight_decay),
            # Other random numbers than those of the first head.
            seed=(run.seed + 1) % 2**31,
            name="second_logits",
        )
        hidden, logits = with_features.outputs
        return features.model_like(
            network,
            {"logits": logits, "second_logits": second(hidden)},
            name="two_heads",
        )


register(TwoHeads())
