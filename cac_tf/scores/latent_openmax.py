# SPDX-License-Identifier: Apache-2.0
"""OpenMax with the distances of logits and latents together (CROSR)."""

from collections.abc import Callable
from typing import Any

import keras

from cac_tf.annotations import Config
from cac_tf.annotations import Tensor
from cac_tf.scores.openmax import OpenMax
from cac_tf.scores.registry import register

# It brings Euclidean distances into the range of cosine distances.
_EUCLIDEAN_UNIT = 200.0
# Vectors of zeros have no direction.
_TINY = 1e-12


@register
@keras.saving.register_keras_serializable(package="CacTf")
class LatentOpenMax(OpenMax):
    r"""Unknown score \\(p_0\\): OpenMax with distances that include latents.

    Its Weibull tails are those of the distances
    \\(\lVert [y, z] - \mu_j \rVert\\) of the vectors [y, z] from their class
    means, where y are the logits and z the latents from which the network
    reconstructs its input. Only the logits are recalibrated and contribute to
    the logit of "unknown", as in `OpenMax`.

    It reads the output `latents`, (B, L), of the method `crosr` or of any
    backbone that returns an output of this name.

    Paper: Yoshihashi et al., *Classification-Reconstruction Learning for
    Open-Set Recognition*, CVPR 2019, section 3.2.

    Differences: the paper uses Euclidean distances. The default, "eucos", comes
    from the only code that could be found, which is not the authors'.

    Cost: that of `openmax` with N + L instead of N in the distances: O(N (N +
    L)) per row; N (N + L) + 3 N numbers are kept. `fit` keeps N + L numbers of
    each example.

    Args:
        tail_size, rank, shift, form: as for `OpenMax`.
        distance: "eucos", Euclidean distance / 200 + cosine distance, as in
            the code of OpenMax' authors; or "euclidean".
        **kwargs: `name` of the score.

    Raises:
        ValueError: as `OpenMax`; another distance.

    Example:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 3
    >>> logits = 10 * np.eye(3)[labels] + rng.standard_normal((300, 3))
    >>> latents = 5 + rng.uniform(size=(300, 2))
    >>> score = LatentOpenMax(distance="euclidean")
    >>> statistics = score.fit(labels, logits=logits, latents=latents)
    >>> logits, latents = np.float32([[10, 0, 0]] * 2), np.float32([[5.5, 5.5],
    ...     [0, 20]])
    >>> found = score(logits, latents, **statistics)  # the same logits
    >>> np.round(np.asarray(found), 2)
    array([0., 1.], dtype=float32)
    """

    NAME, READS = "latent_openmax", ("logits", "latents")

    def __init__(
        self,
        tail_size: int = 20,
        rank: int | None = 10,
        shift: float = 1.0,
        form: str = "probability",
        distance: str = "eucos",
        **kwargs: Any,
    ) -> None:
        super().__init__(tail_size, rank, shift, form, **kwargs)
        if distance not in ("eucos", "euclidean"):
            raise ValueError(
                f'distance must be "eucos" or "euclidean"; got {distance!r}.'
            )
        self.distance = distance

    def distances(
        self,
        vectors: Tensor,
        means: Tensor,
        euclidean: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        apart = euclidean(vectors, means)
        if self.distance == "euclidean":
            return apart

        def directions(x):
            length = euclidean(x, [0.0 * means[0]])
            return x / (length + _TINY)

        # 1 - cos of the angle, without its cancellation.
        chords = euclidean(directions(vectors), directions(means))
        return apart / _EUCLIDEAN_UNIT + chords * chords / 2.0

    def get_config(self) -> Config:
        return {**super().get_config(), "distance": self.distance}
