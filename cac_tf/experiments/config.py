# SPDX-License-Identifier: Apache-2.0
"""What makes up an experiment: data, method, recipe, score, seed."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

from cac_tf import lazy
from cac_tf import methods
from cac_tf import scores as score_rules
from cac_tf.annotations import Path
from cac_tf.data import DataOptions
from cac_tf.data.sources.npz_arrays import origin_of
from cac_tf.data.sources.source import resized_as
from cac_tf.data.sources.source import source_of
from cac_tf.decision.calibration import MEASURES
from cac_tf.methods import presets
from cac_tf.models import networks
from cac_tf.options import Options
from cac_tf.options import described
from cac_tf.options import field
from cac_tf.registry import did_you_mean

# Wrong settings are found before Keras is loaded.
keras = lazy.module("keras")
pretrained = lazy.module("cac_tf.models.pretrained")

# As `scores`: all of them.
ALL = "all"


def _score(otherwise):
    return field(
        None,
        f"The rule that computes the unknown score. Default: {otherwise}.",
        kind=str,
        choices=score_rules.names,
        group="score",
    )


def _scores():
    return field(
        None,
        "Scores to compare on the test data. Default: those of the method.",
        kind=tuple,
        choices=lambda: (ALL, *score_rules.names()),
        group="score",
    )


def _tta(otherwise):
    return field(
        None,
        "Test-time augmentation. flip: averages the logits and features of "
        "each image and its mirror image, at twice the cost. Default: "
        f"{otherwise}.",
        kind=str,
        choices=("none", "flip"),
        group="score",
    )


@dataclasses.dataclass(frozen=True)
class ExperimentConfig(Options):
    """Everything that decides the result of a training run.

    `data` is a `data.DataOptions` or a dict of its fields; `recipe` is a dict
    of recipe values that override the data set's preset; `scores` may be "all".

    Raises:
        ValueError: a value that is not allowed, or that has no effect in
            combination with the others.

    Example:

    >>> config = ExperimentConfig({"dataset": "digits"}, recipe={"epochs": 3})
    >>> config.recipe_in_force.epochs, config.recipe_in_force.learning_rate
    (3, 0.02)
    >>> ExperimentConfig.from_dict(config.to_dict()) == config
    True
    """

    data: DataOptions
    method: str = field(
        "cac", "The method: how the model is trained.", choices=methods.names
    )
    recipe: dict = dataclasses.field(default_factory=dict)
    score: str | None = _score(
        "the method's own; vim for images with a pretrained network, knn for "
        "vectors and texts"
    )
    tta: str | None = _tta("none")
    scores: str | tuple | None = _scores()
    seed: int = field(
        0,
        "Random seed; the same seed gives the same weights if the number of "
        "threads is the same.",
        at_least=0,
        at_most=2**32 - 1,
    )
    evaluate_every: int = field(
        0,
        "Evaluate on the test data every N epochs (with anchors as centers) "
        "for a learning curve in history.json and the report; it does not "
        "influence the training. 0: only at the end.",
        at_least=0,
        at_most=10**6,
    )
    true_positive_rate: float = field(
        0.95,
        "The threshold accepts this fraction of the known validation inputs.",
        group="score",
        above=0,
        below=1,
    )
    maximize: str | None = field(
        None,
        "Measure that the threshold maximizes, instead of a fixed "
        "true-positive rate. The rate is chosen with three extra trainings, "
        "each of which leaves out a quarter of the known classes and treats "
        "them as unknown.",
        kind=str,
        choices=MEASURES,
        group="score",
    )
    unknown_share: float = field(
        0.5,
        "With maximize: the expected fraction of unknown inputs.",
        group="score",
        above=0,
        below=1,
    )
    precision: str = field(
        "float32",
        "Keras dtype policy of the backbone.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )

    def __post_init__(self):
        object.__setattr__(self, "data", DataOptions.of(self.data))
        method = methods.get(self.method)
        recipe = self._recipe(method)
        if self.is_pretrained:
            object.__setattr__(self, "data", self._data_for_pretrained())
        score = self.score
        if score is None and self.vectors is not None:
            score = (
                method.score_of_frozen_images
                if self.takes_images
                else method.score_of_vectors
            )
        object.__setattr__(self, "score", score or method.scores[0])
        object.__setattr__(self, "tta", plain_tta(self.tta))
        if self.is_pretrained and not recipe.fine_tune and self.tta == "flip":
            raise ValueError(
                "tta=flip is not available with a frozen network "
                f"(network={recipe.network}), because each image is computed "
                "only once: leave it out, or set fine_tune."
            )
        if getattr(recipe, "fine_tune", 0) and not hasattr(
            method, "fit_classifier"
        ):
            self._has_no_effect("fine_tune", f"method={self.method}")
        method.check(recipe, self.dataset_name, self.tta, self.score)
        scores = compared_scores(self.scores, method)
        object.__setattr__(self, "scores", scores)
        score_rules.check(self.score)
        super().__post_init__()
        name, why = (
            ("unknown_share", "without maximize")
            if self.maximize is None
            else ("true_positive_rate", f"with maximize={self.maximize}")
        )
        if (value := getattr(self, name)) != getattr(type(self), name):
            raise ValueError(
                f"{name}={value} has no effect {why}; leave it out."
            )
        if (
            self.evaluate_every
            and score_rules.find(self.score).IS_FITTED_TO_DATA
        ):
            raise ValueError(
                f"evaluate_every={self.evaluate_every} has no effect with "
                f"score={self.score}, which is fitted after training; leave "
                "it out, or choose a score that needs no fitting, such as "
                "score=max_logit."
            )

    @property
    def dataset_name(self) -> str:
        """Name of the data set; for dumped arrays, of the original data set."""
        return origin_of(self.data.dataset) or self.data.dataset

    @property
    def is_pretrained(self) -> bool:
        """Whether the network is a pretrained one."""
        return networks.is_pretrained(self.recipe.get("network", ""))

    # A file is looked at for these.
    @functools.cached_property
    def takes_images(self) -> bool:
        """Whether the data, and so the model's inputs, are images."""
        source, options = self._source
        return source.holds_images(self.data.dataset, **options)

    @functools.cached_property
    def vectors(self) -> int | None:
        """About how many vectors the method is trained on, and tested.

        Those of the data, or those that a pretrained network makes of them.
        None: it is trained on images.
        """
        if self.takes_images and not self.is_pretrained:
            return None
        source, options = self._source
        return source.num_inputs(self.data.dataset, **options)

    @property
    def _source(self):
        """Where the data come from, and its options."""
        source = source_of(self.data.dataset)
        return source, {n: getattr(self.data, n) for n in source.OPTIONS}

    def _data_for_pretrained(self):
        """The data, with images of the size that the network takes."""
        network = self.recipe["network"]
        if not self.takes_images:
            if network.startswith(networks.HUB):
                return self.data  # (Whether it takes texts, it will say.)
            raise ValueError(
                f"network={network} needs images, but {self.dataset_name} "
                "contains none; leave it out."
            )
        # As it resizes images itself.
        return resized_as(
            self.data, lambda: pretrained.image_size_of(network), "bicubic"
        )

    def _recipe(self, method):
        fields = {field.name for field in dataclasses.fields(method.recipe)}
        for name in sorted(set(self.recipe) - fields):
            self._has_no_effect(name, f"method={self.method}")
        if not self.takes_images:
            for name in presets.OF_IMAGES:
                # (A run's config.json has them, as the preset does.)
                if self.recipe.get(name, 0.0) not in (0.0, 1.0):
                    self._has_no_effect(name, "vectors")
        recipe = method.recipe_for(self.dataset_name, self.recipe, self.vectors)
        for name, why in sorted(recipe.unused.items()):
            if name in self.recipe or (
                name == "true_positive_rate"
                and self.true_positive_rate != type(self).true_positive_rate
            ):
                self._has_no_effect(name, why)
        return recipe

    def _has_no_effect(self, name, why):
        value = self.recipe.get(name, self.true_positive_rate)
        raise ValueError(
            f"{name}={value} has no effect with {why}; leave it out."
        )

    @property
    def recipe_in_force(self) -> Any:
        """The method's recipe, from preset and overrides."""
        return self._recipe(methods.get(self.method))

    def settings(self) -> dict[str, Any]:
        """What `config.json` stores: every value in force, by name.

        Two runs with the same settings, data and environment give the same
        result.
        """
        return {
            **dataclasses.asdict(self),
            "data": self.data.in_force,
            "recipe": self.recipe_in_force.in_force,
            "scores": list(self.scores or ()),
            "backend": keras.backend.backend(),
        }

    to_dict = settings

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """The configuration of `settings`, of a run's `config.json`.

        Raises:
            ValueError: a key that is not part of a configuration, or Keras
                runs on another backend.
        """
        if not isinstance(settings, dict) or not isinstance(
            settings.get("data"), dict
        ):
            raise ValueError(
                "These are not the settings of a run: they have no data."
            )
        settings = dict(settings)
        backend = settings.pop("backend", None)
        if backend not in (None, keras.backend.backend()):
            raise ValueError(
                f"The run was made with the backend {backend}, but Keras is "
                f"running on {keras.backend.backend()}. Set "
                f"KERAS_BACKEND={backend}."
            )
        fields = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(settings) - fields)
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)}: not part of a training's configuration."
            )
        if settings.get("scores") is not None:
            settings["scores"] = tuple(settings["scores"])
        return cls(**settings)

    def __eq__(self, other):
        return (
            isinstance(other, ExperimentConfig)
            and self.settings() == other.settings()
        )

    __hash__ = None  # type: ignore[assignment]


ExperimentConfig.__doc__ = described(ExperimentConfig)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Options):
    """What to evaluate a saved model on, and how.

    `model` is the path of the .keras file; `data` a `data.DataOptions`, or a
    dict of its fields; None: those of the run that the model belongs to. Every
    set of `unknown_data`, a
    source of `data.load_unknown_images`, is measured by itself against the
    known test images, and nothing is chosen by them.

    Raises:
        ValueError: both a rate and a threshold, a rate out of range, or a name
            that is not a score.
    """

    model: Path
    data: DataOptions | None = None
    recenter: bool = field(
        False,
        "Use the class means of the training images as centers, as is done "
        "after training.",
    )
    score: str | None = _score("the model's own")
    tta: str | None = _tta("the model's own")
    scores: str | tuple | None = _scores()
    true_positive_rate: float | None = field(
        None,
        "Recalibrate the threshold on the known validation inputs. Default: "
        "keep the model's own; 0.95 if it has none, or if recentering, "
        "another score or another tta made it invalid.",
        kind=float,
        above=0,
        below=1,
    )
    threshold: float | None = field(
        None,
        "The threshold, instead of a true-positive rate.",
        kind=float,
    )
    unknown_data: tuple = field(
        (),
        "Additional unknown test images, each set evaluated separately: "
        "tfds:<name>, folder:<path> of image files, or npz:<path>.",
    )

    def __post_init__(self):
        object.__setattr__(self, "model", os.fspath(self.model))
        if self.data is not None:
            object.__setattr__(self, "data", DataOptions.of(self.data))
        if self.scores is not None:
            scores_named(self.scores)
            object.__setattr__(self, "scores", _listed(self.scores))
        if self.score is not None:
            score_rules.check(self.score)
        super().__post_init__()
        if self.true_positive_rate is not None and self.threshold is not None:
            raise ValueError(
                "Give true_positive_rate=... or threshold=..., not both."
            )


EvaluationConfig.__doc__ = described(EvaluationConfig)


def is_frozen(recipe: Mapping[str, Any]) -> bool:
    """Whether a head is trained on what a pretrained network makes of images.

    Args:
        recipe: of a configuration, or of the settings of a run.

    Example:

    >>> is_frozen({"network": "keras_applications/EfficientNetV2B0"})
    True
    >>> is_frozen({"network": "resnet18"})
    False
    """
    is_pretrained = networks.is_pretrained(recipe.get("network", ""))
    return is_pretrained and not recipe.get("fine_tune")


def plain_tta(tta: str | None) -> str | None:
    """The `tta` of a model for that of a configuration."""
    return None if tta == "none" else tta


def compared_scores(
    names: str | Sequence[str] | None, method: methods.Method | None
) -> tuple[str, ...]:
    """Names of the scores that are compared for a model of a method.

    Args:
        names: as in `scores_named`; None: those of the method. With "all",
            those of the method are among them.
        method: `methods.Method`, or None where it is not known.

    Raises:
        ValueError: a name that is not a score.
    """
    own = tuple(method.scores) if method else ()
    if names is None:
        return own
    further = own if _listed(names) == (ALL,) else ()
    return tuple(dict.fromkeys((*scores_named(names), *further)))


def scores_named(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of scores, each once.

    Args:
        names: names, or one; or "all" alone, for all that read nothing but
            what every classifier may return. Others belong to the methods
            whose networks have their outputs.

    Raises:
        ValueError: a name that is not a score.
    """
    known, names = score_rules.names(), _listed(names)
    if names == (ALL,):
        return score_rules.common_names()
    for name in names:
        if name not in known:
            raise ValueError(
                f"scores must be {ALL}, or names from: {', '.join(known)}; "
                f"got {name!r}{did_you_mean(name, (ALL, *known))}"
            )
    return tuple(dict.fromkeys(names))


def _listed(names):
    return (names,) if isinstance(names, str) else tuple(names)
