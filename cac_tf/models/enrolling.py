# SPDX-License-Identifier: Apache-2.0
"""Classes that are added to a model, taken from it and renamed, untrained.

Each change is a new model; the old one stays as it is. A journal of the changes
travels with the model.
"""

import copy
import datetime
import typing
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from keras import ops

from cac_tf.decision import calibration
from cac_tf.labels import UNKNOWN_NAME
from cac_tf.models.backbone_checks import check_class_names
from cac_tf.models.calibrated_classifier import CalibratedClassifier
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.scores import Score
from cac_tf.scores.enrolled import Enrolled

# If the model accepts a larger share of the examples, they are nothing new.
_MOST_ACCEPTED = 0.5


class _Class(typing.NamedTuple):
    """What a model keeps of an enrolled class."""

    center: np.ndarray  # (D,) mean logits
    rows: np.ndarray  # (r, W) of `Score.class_rows`
    examples: int
    threshold: float


class Enrolling(CalibratedClassifier):
    """Base of `OpenSetClassifier`: other models with other classes."""

    def __init__(
        self,
        *args: Any,
        journal: Sequence[Mapping[str, Any]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._own.journal = copy.deepcopy(list(journal))

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The changes made after training, oldest first.

        Each entry has `version`, 2, 3, ...; `time`, in UTC; `change`, "enroll",
        "remove", "rename" or "merge"; and `classes`, by name: how many
        `examples` a class is made of, its `threshold`, and how many of its
        examples are `recognized` from the rest.
        """
        return copy.deepcopy(self._own.journal)

    @property
    def version(self) -> int:
        """1, and 1 more for each change in the journal."""
        return 1 + len(self._own.journal)

    @property
    def enrolled_classes(self) -> dict[str, int]:
        """How many examples each enrolled class was made of, by name."""
        if not isinstance(self.score, Enrolled):
            return {}
        names = self.class_names[self.score.num_trained :]
        return dict(zip(names, self.score.examples, strict=True))

    def enroll(
        self,
        classes: Mapping[str, Any],
        *,
        true_positive_rate: float | None = None,
        accept_known: bool = False,
        batch_size: int | None = None,
    ) -> Self:
        """A model with more classes, from a few examples of each.

        Nothing is trained. An input moves from the class that this model gives
        it to a new class if that is nearer, as the score measures; all other
        inputs keep their class, score and p-value. The p-value is still the
        share of known calibration examples that are at least as far from their
        own class, or their own nearest example, as the input.

        Each example is also tested against only the others of its class; the
        journal records how many are then recognized.

        Args:
            classes: dict from the name of each new class to its inputs, at
                least two; for their form, see `OpenSetClassifier`.
            true_positive_rate: None: the new classes use the model's threshold.
                Or a share: each new class gets its own threshold, which accepts
                this share of new inputs of the class; it is set from each
                example's score against the others.
            accept_known: whether a class may be enrolled although the model
                accepts more than half of its examples as classes that it knows.
            batch_size: see the class.

        Returns:
            A new model, which shares the classifier with this one.

        Raises:
            ValueError: a score that cannot enroll a class (the message lists
                those that can), no threshold, a name that exists, too few
                examples, a rate outside (0, 1), or a class of which the model
                accepts more than half of the examples; see also
                `predict_scores`.

        Example:

        >>> larger = model.with_score("knn", (x, y))  # doctest: +SKIP
        >>> larger.calibrate(x_val, true_positive_rate=0.95)  # doctest: +SKIP
        >>> larger = larger.enroll({"lynx": photos})  # doctest: +SKIP
        >>> larger.enrolled_classes  # doctest: +SKIP
        {'lynx': 20}
        """
        thresholds = self.require_threshold()
        score = _trained(self.score)
        score.require_enrolling()
        if not classes:
            raise ValueError("There is no class to enroll.")
        existing = set(classes) & set(self.class_names)
        if existing:
            raise ValueError(
                f"The model already has a class {min(existing)!r}: choose "
                "another name, or remove that class first."
            )
        check_class_names([*self.class_names, *classes], UNKNOWN_NAME)
        if true_positive_rate is None and not isinstance(thresholds, float):
            raise ValueError(
                "The model has a separate threshold for each class: set "
                "true_positive_rate for those of the new classes."
            )
        examples = {
            name: _Examples(self, score, name, inputs, batch_size)
            for name, inputs in classes.items()
        }
        for one in examples.values():
            one.check_number(true_positive_rate)
            if not accept_known:
                one.require_unknown(self)
        made = {
            name: one.of_all(float(np.mean(thresholds)))
            for name, one in examples.items()
        }
        kept = {**self._enrolled(), **made}
        said = {}
        for name, one in examples.items():
            scores, are_own, own = one.by_the_others(self, kept)
            if true_positive_rate is not None:
                threshold = calibration.threshold_for_true_positive_rate(
                    own, true_positive_rate, score.RESOLUTION
                )
                kept[name] = kept[name]._replace(threshold=threshold)
            threshold = kept[name].threshold
            accepted = scores <= np.float32(threshold)
            said[name] = {
                "examples": len(one),
                "recognized": int((are_own & accepted).sum()),
                "threshold": threshold,
            }
        return self._changed("enroll", said, self._names_of_trained, kept)

    def remove(self, names: str | Iterable[str]) -> Self:
        """A model without some of its enrolled classes.

        Args:
            names: of the classes.

        Returns:
            A new model, as it would be if these classes had never been
            enrolled.

        Raises:
            ValueError: no such class, or one that was trained.
        """
        names = self._require_enrolled(names, "remove")
        kept = self._enrolled()
        for name in names:
            del kept[name]
        return self._changed(
            "remove", {name: {} for name in names}, self._names_of_trained, kept
        )

    def rename(self, names: Mapping[str, str]) -> Self:
        """A model whose classes have other names.

        Args:
            names: dict from current names, of any classes, to new ones.

        Raises:
            ValueError: no such class, or a name that exists.
        """
        missing = sorted(set(names) - set(self.class_names))
        if missing or not names:
            raise ValueError(
                f"There is no class {missing[0]!r} to rename; the classes "
                f"are: {', '.join(self.class_names)}."
                if missing
                else "There is no class to rename."
            )
        new = [names.get(name, name) for name in self.class_names]
        check_class_names(new, UNKNOWN_NAME)
        count = len(self._names_of_trained)
        kept = self._enrolled().values()
        return self._changed(
            "rename",
            {new_one: {"before": name} for name, new_one in names.items()},
            new[:count],
            dict(zip(new[count:], kept, strict=True)),
        )

    def merge(self, classes: Mapping[str, Sequence[str]]) -> Self:
        """A model in which several enrolled classes become one.

        Args:
            classes: dict from the name of each new class to the names of the
                two or more enrolled classes that it replaces; it takes the
                place of the first.

        Returns:
            A new model, as if all their examples had been enrolled as one
            class. Its threshold is the largest of their thresholds.

        Raises:
            ValueError: no such class, one that was trained, a single one, or a
                name that exists.
        """
        score, said = _trained(self.score), {}
        names, kept = list(self._names_of_trained), self._enrolled()
        for new, those in classes.items():
            merged = self._require_enrolled(those, "merge")
            absent = [name for name in merged if name not in kept]
            if absent or len(merged) < 2:
                raise ValueError(
                    f"{new!r} must be merged from at least two classes, each "
                    f"used only once; got {', '.join(map(repr, merged))}."
                )
            if new in names or new in set(kept) - set(merged):
                raise ValueError(f"The model already has a class {new!r}.")
            parts = [kept[name] for name in merged]
            one = _merged(score, parts, len(names))
            kept = {
                new if name == merged[0] else name: (
                    one if name == merged[0] else old
                )
                for name, old in kept.items()
                if name not in merged[1:]
            }
            said[new] = {
                "before": merged,
                "examples": one.examples,
                "threshold": one.threshold,
            }
        if not said:
            raise ValueError("There are no classes to merge.")
        check_class_names([*names, *kept], UNKNOWN_NAME)
        return self._changed("merge", said, names, kept)

    # ---- the parts of a model, and a model of parts ------------------------

    @property
    def _names_of_trained(self):
        count = len(self.class_names) - len(self.enrolled_classes)
        return self.class_names[:count]

    @property
    def _thresholds(self):
        """(N,), NaN while there are none."""
        threshold = np.nan if self.threshold is None else self.threshold
        return np.broadcast_to(threshold, len(self.class_names))

    def _of_trained(self):
        """The statistics of the score of the trained classes."""
        return {k: v for k, v in self.statistics.items() if k != "enrolled"}

    def _enrolled(self):
        """Dict from the names of enrolled classes to `_Class`."""
        if not self.enrolled_classes:
            return {}
        count, statistics = self.score.num_trained, self.statistics
        parts = zip(
            self.centers[count:],
            self.score.classes_of(statistics.get("enrolled")),
            self.score.examples,
            self._thresholds[count:].tolist(),
            strict=True,
        )
        return dict(
            zip(self.enrolled_classes, map(_Class._make, parts), strict=True)
        )

    def _require_enrolled(self, names, what):
        """The names as a list; raises ValueError unless all were enrolled."""
        names = [names] if isinstance(names, str) else list(names)
        if not names:
            raise ValueError(f"There is no class to {what}.")
        for name in names:
            if name not in self.class_names:
                raise ValueError(
                    f"There is no enrolled class {name!r} to {what}; enrolled "
                    f"are: {', '.join(self.enrolled_classes) or 'none'}."
                )
            if name not in self.enrolled_classes:
                raise ValueError(
                    f"The class {name!r} was trained, not enrolled. To get a "
                    f"classifier without it, retrain: {what} would leave its "
                    "logit in place."
                )
        if len(set(names)) < len(names):
            raise ValueError(f"A class is listed twice: {', '.join(names)}.")
        return names

    def _with_classes(self, names, enrolled, journal=()):
        """A model of the trained classes of this one and enrolled ones.

        Args:
            names: of the trained classes.
            enrolled: `_Class` by name.
            journal: of the model.
        """
        self.require_same_classifier()
        count, classes = len(names), list(enrolled.values())
        statistics = self._of_trained()
        score, centers = _trained(self.score), self.centers[:count]
        if classes:
            centers = np.vstack([centers, *(one.center for one in classes)])
            score = _competing(score, count, classes)
            if classes[0].rows.size:
                statistics["enrolled"] = np.vstack(
                    [one.rows for one in classes]
                )
        thresholds = np.append(
            self._thresholds[:count], [one.threshold for one in classes]
        )
        model = type(self)(
            self.classifier,
            [*names, *enrolled],
            score,
            centers=centers if classes else _length_of_anchors(centers),
            statistics=statistics,
            threshold=None if self.threshold is None else thresholds,
            features_layer=self.network.features_layer,
            tta=self.tta,
            input_shape=self.inputs_taken.shape,
            is_shared=self.is_shared,
            journal=journal,
        )
        model.calibration = self.calibration
        return model

    def _changed(self, change, classes, names, enrolled):
        now = datetime.datetime.now(datetime.UTC)
        entry = {
            "version": self.version + 1,
            "time": now.isoformat(timespec="seconds"),
            "change": change,
            "classes": classes,
        }
        return self._with_classes(names, enrolled, [*self.journal, entry])


class _Examples:
    """Examples of a class that is enrolled.

    Args:
        model: to which it is.
        score: of its trained classes.
        name: of the class.
        inputs, batch_size: as of `predict_scores`.
    """

    def __init__(
        self,
        model: Enrolling,
        score: Score,
        name: str,
        inputs: Any,
        batch_size: int | None,
    ) -> None:
        self.name, self._score = name, score
        self._num_trained = len(model._names_of_trained)
        if isinstance(inputs, ComputedOutputs):
            inputs.check(model.network, score)
        needed = (*score.reads_for_prediction, "unknown_score")
        parts = [
            outputs
            for outputs, *_ in model.iterate_outputs(
                inputs,
                batch_size=batch_size,
                names=(*needed, "predicted_class_id"),
                single_view=True,
            )
        ]
        if not parts:
            raise ValueError(f"There are no examples of {name!r}.")
        self.outputs = {
            key: np.concatenate([part[key] for part in parts])
            for key in parts[0]
        }
        self._statistics = model._of_trained()
        self._rows = score.example_rows(
            *score.arguments_of(self.outputs), **self._statistics
        )

    def __len__(self) -> int:
        return len(self._rows)

    def check_number(self, rate):
        """Raises ValueError if there are too few examples for a rate."""
        fewest = 2
        if rate is not None:
            fewest = max(fewest, calibration.fewest_examples(rate))
        if len(self) < fewest:
            why = "so that each can be compared with the others"
            if rate is not None:
                why = (
                    "to guarantee a threshold that accepts the fraction "
                    f"{rate} of new ones"
                )
            raise ValueError(
                f"{len(self)} examples of {self.name!r} are too few: at "
                f"least {fewest} are needed {why}."
            )

    def require_unknown(self, model):
        """Raises ValueError if a model accepts most of the examples."""
        scores = self.outputs["unknown_score"]
        predicted = self.outputs["predicted_class_id"]
        accepted = scores <= np.float32(model._thresholds)[predicted]
        if accepted.sum() > _MOST_ACCEPTED * len(self):
            counts = np.bincount(predicted[accepted])
            most = np.argsort(-counts, kind="stable")
            as_what = ", ".join(
                f"{counts[i]} as {model.class_names[i]!r}"
                for i in most
                if counts[i]
            )
            raise ValueError(
                f"The model already accepts {accepted.sum()} of the "
                f"{len(self)} examples of {self.name!r}: {as_what}. If they "
                "really are a class of their own: accept_known=True."
            )

    def of_all(self, threshold):
        """`_Class` of all examples."""
        return self._made(np.arange(len(self)), threshold)

    def _made(self, indices, threshold=0.0):
        counts = np.ones(len(indices))
        rows = self._score.class_rows(
            self._rows[indices], counts, self._num_trained
        )
        logits = self.outputs["logits"][indices]
        center = np.float32(logits.mean(axis=0, dtype="float64"))
        return _Class(center, rows, len(indices), threshold)

    def by_the_others(self, model, kept):
        """Each example's answer by a model that has not seen it.

        Args:
            model: without the class.
            kept: `_Class` of all enrolled classes by name.

        Returns:
            Arrays: (n,) unknown scores, (n,) whether the class is the
            predicted one, and (n,) how far the examples are from the class.
        """
        place, classes = list(kept).index(self.name), list(kept.values())
        score = _competing(self._score, self._num_trained, classes)
        column, count = self._num_trained + place, len(self)
        fixed = {
            k: ops.convert_to_tensor(v) for k, v in self._statistics.items()
        }
        centers = np.vstack(
            [
                model.centers[: self._num_trained],
                *(one.center for one in classes),
            ]
        )
        logits = np.float64(self.outputs["logits"])
        distances = np.stack(
            [np.linalg.norm(logits - one, axis=-1) for one in centers], axis=-1
        )
        # From the mean of the others.
        distances[:, column] *= count / (count - 1)
        outputs = {
            k: ops.convert_to_tensor(v)
            for k, v in (self.outputs | {"distances": distances}).items()
        }
        outputs["distances"] = ops.cast(outputs["distances"], "float32")
        before, predicted = score.of_trained(outputs, **fixed)
        rows = [ops.convert_to_tensor(one.rows) for one in classes]
        apart = np.array(
            ops.convert_to_numpy(score.apart(outputs, predicted, rows, **fixed))
        )
        if not self._score.reads_distances:
            # Arrays are cut, not tensors, of which JAX would compile each cut.
            values = self._score.arguments_of(self.outputs)
            class_ids = ops.convert_to_numpy(predicted)
            for i in range(count):
                others = self._made(np.delete(np.arange(count), i)).rows
                own = self._score.compare(
                    [ops.convert_to_tensor(one[i : i + 1]) for one in values],
                    ops.convert_to_tensor(class_ids[i : i + 1]),
                    [ops.convert_to_tensor(others)],
                    **fixed,
                )
                apart[i, 1 + place] = ops.convert_to_numpy(own)[0, 1]
        scores, found = map(
            ops.convert_to_numpy,
            score.competed(before, predicted, ops.convert_to_tensor(apart)),
        )
        return scores, found == column, apart[:, 1 + place]


def _competing(score, num_trained, classes):
    """`Enrolled` of `_Class`es."""
    return Enrolled(
        score,
        num_trained,
        [one.examples for one in classes],
        [len(one.rows) for one in classes],
    )


def _merged(score, parts, num_trained):
    """`_Class` of the examples of several."""
    counts = np.array([one.examples for one in parts], "float64")
    rows = np.concatenate([one.rows for one in parts])
    of_rows = np.repeat(
        counts / [len(one.rows) for one in parts],
        [len(one.rows) for one in parts],
    )
    centers = [one.center for one in parts]
    return _Class(
        np.float32(np.average(centers, axis=0, weights=counts)),
        score.class_rows(rows, of_rows, num_trained),
        int(counts.sum()),
        max(one.threshold for one in parts),
    )


def _length_of_anchors(centers):
    """The length of anchors, or the centers if they are none."""
    magnitude = float(centers[0, 0])
    anchors = np.float32(magnitude) * np.eye(*centers.shape, dtype="float32")
    are_anchors = magnitude > 0 and np.array_equal(centers, anchors)
    return magnitude if are_anchors else centers


def _trained(score: Score) -> Score:
    """The score of the trained classes."""
    return score.score if isinstance(score, Enrolled) else score
