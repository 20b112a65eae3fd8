# SPDX-License-Identifier: Apache-2.0
"""ViM: a virtual logit for what the classes leave out (Wang et al., 2022)."""

import warnings

import keras
import numpy as np
import scipy.linalg
from keras import ops

from cac_tf.precision import full_precision
from cac_tf.scores.score import Score
from cac_tf.scores.statistics import Sample
from cac_tf.scores.statistics import SecondMoment

# Of so many examples the mean residual and the mean largest logit are taken.
_SAMPLE_SIZE = 4096


@keras.saving.register_keras_serializable(package="CacTf")
class ViM(Score):
    r"""Unknown score \\(a \lVert R^T (x - o) \rVert - \log \sum_j e^{z_j}\\).

    Of features x the columns of R span the residual space: the directions in
    which the training features have the smallest second moment about the
    origin o = -pinv(W^T) b, where all logits of the last layer are 0 (the
    mean of the features, where what follows them is no dense layer). The
    residual is scaled to the logits: a is the training data's mean largest
    logit over their mean residual. (Wang et al., *ViM: Out-Of-Distribution
    with Virtual-logit Matching*, CVPR 2022. They put the virtual logit into a
    softmax; this is the same order.)

    Args:
        principal_dimensions: directions that do not belong to the residual
            space. None: as the authors have it, 1000 of 2048 or more
            features, 512 of 768 or more, else half of them; and at most half
            as many as there are examples, with a warning.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: fewer than one principal dimension; in `fit`, no direction
            or no residual left, or logits whose largest is not positive on
            average.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> features = np.float32(rng.standard_normal((400, 4)) * [9, 9, 1, 1])
    >>> logits = np.abs(features[:, :2])
    >>> score = ViM(principal_dimensions=2)
    >>> score.fit(np.zeros(400), logits=logits, features=features)
    >>> near, far = np.asarray(score(logits[:2], np.float32([
    ...     [9, 9, 1, 1], [9, 9, 9, 9]])))
    >>> bool(far > near)
    True
    """

    NAME, NEEDS = "vim", ("logits", "features")
    IS_FITTED_TO_DATA = True

    def __init__(self, principal_dimensions=None, **kwargs):
        super().__init__(**kwargs)
        if principal_dimensions is not None and principal_dimensions < 1:
            raise ValueError(
                "principal_dimensions must be at least 1; got "
                f"{principal_dimensions}."
            )
        self.principal_dimensions = principal_dimensions

    def start_fit(self, num_classes):
        return SecondMoment(), Sample(_SAMPLE_SIZE)

    def add_batch(self, kept, batch):
        moment, sample = kept
        moment.add(batch.features)
        sample.add(batch.keys, batch.features, batch.logits.max(axis=-1))

    def finish_fit(self, kept, known):
        moment, sample = kept
        features, largest_logits = sample.arrays()
        origin = moment.sum / moment.count
        if known.last_layer is not None:
            kernel = np.float64(known.last_layer.kernel)
            origin = -np.linalg.pinv(kernel.T) @ known.last_layer.bias
        width = len(origin)
        principal = self._principal_dimensions(width, moment.count)
        # Eigenvalues ascend.
        _, residual_space = scipy.linalg.eigh(
            moment.about(origin),
            subset_by_index=(0, width - principal - 1),
            overwrite_a=True,
        )
        offsets = np.float64(features) - origin
        residuals = np.linalg.norm(offsets @ residual_space, axis=-1)
        lengths = np.linalg.norm(offsets, axis=-1)
        if residuals.mean() <= 1e-6 * lengths.mean():
            raise ValueError(
                f"All {moment.count} examples lie within {principal} of the "
                f"{width} features' dimensions, so ViM has no residual to go "
                "by: choose fewer principal_dimensions."
            )
        if largest_logits.mean() <= 0:
            raise ValueError(
                "ViM scales the residual to the largest logits, whose mean "
                f"over the examples must be positive; it is "
                f"{largest_logits.mean():.3g}."
            )
        scale = largest_logits.mean(dtype="float64") / residuals.mean()
        self.set_statistics(
            origin=origin, residual_space=scale * residual_space
        )

    def _principal_dimensions(self, width, count):
        principal = self.principal_dimensions
        if principal is None:
            principal = next(
                dimensions
                for at_least, dimensions in (
                    (2048, 1000),
                    (768, 512),
                    (0, width // 2),
                )
                if width >= at_least
            )
            if principal > count // 2:
                principal = max(1, count // 2)
                warnings.warn(
                    f"ViM was fitted to {count} examples of {width} features: "
                    f"it takes {principal} principal dimensions, half as many "
                    "as there are examples.",
                    stacklevel=2,
                )
        if principal >= width:
            raise ValueError(
                f"ViM needs a direction left for the residual: {principal} "
                f"principal dimensions of {width} features leave none."
            )
        return principal

    def call(self, logits, features):
        offsets = full_precision(features) - self.statistic("origin")
        # The scale is in it.
        residual = ops.matmul(offsets, self.statistic("residual_space"))
        length = ops.sqrt(ops.sum(ops.square(residual), axis=-1))
        return length - ops.logsumexp(full_precision(logits), axis=-1)

    def get_config(self):
        return {
            **super().get_config(),
            "principal_dimensions": self.principal_dimensions,
        }
