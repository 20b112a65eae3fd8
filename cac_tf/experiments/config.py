# SPDX-License-Identifier: Apache-2.0
"""What makes up an experiment: data, method, recipe, score, seed."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

from cac_tf import lazy
from cac_tf import methods
from cac_tf import scores as score_rules
from cac_tf.data import DataOptions
from cac_tf.data.sources.npz_arrays import origin_of
from cac_tf.registry import did_you_mean

# Wrong settings are found before Keras is loaded.
keras = lazy.module("keras")

# As `score`: the one chosen on known data. As `scores`: all of them.
AUTO, ALL = "auto", "all"
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """Everything that decides the result of a training run.

    Args:
        data: `data.DataOptions`, or a dict of its fields.
        method: name of the method.
        recipe: values of the method's recipe that replace those of the data
            set's preset.
        score: name of the score that decides; "auto" for one that is chosen
            on known data; None for the method's own.
        tta: test-time augmentation: None or "flip".
        scores: names of scores to compare on the test data; "all" for all;
            None for those of the method.
        seed: seed of everything random, in 0...2^32 - 1.
        evaluate_every: number of epochs between evaluations on the test data,
            for a learning curve; nothing is chosen by them. 0: only at the
            end.
        true_positive_rate: share of the known validation images that the
            threshold accepts.
        precision: Keras dtype policy of the networks.

    Raises:
        ValueError: a value that is not allowed, or that has no effect with
            the others.

    Example:

    >>> config = ExperimentConfig({"dataset": "digits"}, recipe={"epochs": 3})
    >>> config.recipe_in_force.epochs, config.recipe_in_force.learning_rate
    (3, 0.02)
    >>> ExperimentConfig.from_dict(config.to_dict()) == config
    True
    """

    data: DataOptions
    method: str = "cac"
    recipe: dict = dataclasses.field(default_factory=dict)
    score: str | None = None
    tta: str | None = None
    scores: str | tuple | None = None
    seed: int = 0
    evaluate_every: int = 0
    true_positive_rate: float = 0.95
    precision: str = "float32"

    def __post_init__(self):
        object.__setattr__(self, "data", DataOptions.of(self.data))
        method = methods.get(self.method)
        recipe = self._recipe(method)
        object.__setattr__(self, "score", self.score or method.scores[0])
        method.check(recipe, self.dataset_name, self.tta, self.score)
        scores = compared_scores(self.scores, method)
        object.__setattr__(self, "scores", scores)
        if self.score != AUTO:
            score_rules.check(self.score)
        if not _is_whole(self.evaluate_every) or self.evaluate_every < 0:
            raise ValueError(
                "evaluate_every must be a whole number of at least 0; got "
                f"{self.evaluate_every!r}."
            )
        if self.evaluate_every and (
            self.score == AUTO or score_rules.find(self.score).IS_FITTED_TO_DATA
        ):
            raise ValueError(
                f"evaluate_every={self.evaluate_every} has no effect with "
                f"score={self.score}, which is fitted after the training; "
                "leave it out."
            )
        if self.tta not in (None, "flip"):
            raise ValueError(f'tta must be None or "flip"; got {self.tta!r}.')
        if not 0.0 < self.true_positive_rate < 1.0:
            raise ValueError(
                "true_positive_rate must be in (0, 1); got "
                f"{self.true_positive_rate}."
            )
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}; got "
                f"{self.precision!r}."
            )
        if not _is_whole(self.seed) or not 0 <= self.seed < 2**32:
            raise ValueError(
                f"seed must be a whole number in 0...{2**32 - 1}; got "
                f"{self.seed!r}."
            )

    @property
    def dataset_name(self) -> str:
        """Name of the data set; for dumped arrays, of the original one."""
        return origin_of(self.data.dataset) or self.data.dataset

    def _recipe(self, method):
        fields = {field.name for field in dataclasses.fields(method.recipe)}
        for name in sorted(set(self.recipe) - fields):
            self._has_no_effect(name, f"method={self.method}")
        recipe = method.recipe_for(self.dataset_name, self.recipe)
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
        """What `config.json` keeps: every value in force, by name.

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
                "These are not the settings of a run: they lack data."
            )
        settings = dict(settings)
        backend = settings.pop("backend", None)
        if backend not in (None, keras.backend.backend()):
            raise ValueError(
                f"The run was made with the backend {backend}; Keras now runs "
                f"on {keras.backend.backend()}. Set KERAS_BACKEND={backend}."
            )
        fields = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(settings) - fields)
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)}: no part of a training's configuration."
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


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


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
                f"scores must be {ALL}, or names of: {', '.join(known)}; got "
                f"{name!r}{did_you_mean(name, (ALL, *known))}"
            )
    return tuple(dict.fromkeys(names))


def _listed(names):
    return (names,) if isinstance(names, str) else tuple(names)
