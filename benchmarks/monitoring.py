# SPDX-License-Identifier: Apache-2.0
"""How often a monitor gives a false alarm, and how late it tells a change.

    python benchmarks/monitoring.py FEATURES

FEATURES is an .npz file with `features` and `labels` of the 10,000 test images
of CIFAR100, by EfficientNet-Lite0. Writes benchmarks/results/monitoring.json;
what is there already is not measured again.

False alarms: scores of calibration and stream come from one distribution, 10
classes are equally frequent, nothing ever changes; runs of 10,000 answers, each
with another calibration. (The rate does not depend on the distribution.) Beside
it the same bets on p-values against the calibration alone, with ties at random,
as if they were independent.

Delay: 50 of the classes are known. A head is trained on 60 images of each; the
other 40 are what calibration and stream are drawn from, with replacement. So
that no score comes twice, each gets normal noise of 1 % of their standard
deviation. After 10,000 answers to known images, images of the 50 other classes
drift in. The delay is the number of answers from then to the first alarm.
Beside it stands the mean delay that no test of this rate can beat, if it knows
when the change comes and the scores' distributions before and after (Wald,
*Sequential Tests of Statistical Hypotheses*, 1945): ln(1 / rate) over their
Kullback-Leibler divergence, here of histograms.
"""

import argparse
import json
import pathlib

import numpy as np
from frozen_head import outputs_of
from frozen_head import trained_head

from cac_tf import atomic_files
from cac_tf.data.class_splits import drawn_classes
from cac_tf.decision import rule
from cac_tf.decision.calibration import threshold_for_true_positive_rate
from cac_tf.decision.p_values import p_value_table
from cac_tf.decision.p_values import p_values
from cac_tf.experiments.environment import environment
from cac_tf.labels import UNKNOWN
from cac_tf.models import OpenSetClassifier
from cac_tf.open_world import Monitor
from cac_tf.open_world.betting import Bets

RESULT = pathlib.Path(__file__).parent / "results" / "monitoring.json"
RATE, ALPHA = 0.95, 0.01
CALIBRATIONS, SHARES = (100, 300, 1000), (0.01, 0.05, 0.2)
LENGTH, QUIET_RUNS = 10_000, 300
BEFORE, RUNS, STEP = 10_000, 50, 250
TRAINED, SCORE, NOISE, BINS = 60, "knn", 0.01, 20


class Calibrated:
    """What a model with these calibration scores answers."""

    def __init__(self, known_scores):
        scores = np.float32(known_scores)
        self.size = len(scores)
        self.table = p_value_table(scores)
        self.threshold = np.float32(
            threshold_for_true_positive_rate(scores, RATE)
        )

    def answers(self, scores, class_ids):
        """Class ids, -1 for unknown, and p-values."""
        scores = np.float32(scores)
        is_known = rule.accepts(scores, self.threshold)
        return (
            np.where(is_known, class_ids, UNKNOWN),
            p_values(scores, *self.table),
        )

    def monitor(self, classes, seed):
        """A new monitor of these answers."""
        return Monitor(
            [str(i) for i in range(classes)],
            self.table.accepted_by(self.threshold),
            false_alarm_rate=ALPHA,
            seed=seed,
        )


def naive_alarm(p_value, size, rng):
    """Whether bets on p-values as if they were independent give an alarm."""
    ranks = p_value * (size + 1) - rng.random(len(p_value))
    values, _ = Bets(1).bet(slice(None), ranks[:, None] / (size + 1))
    return bool(values.max() >= 1 / ALPHA)


def false_alarms(size):
    """Runs with an alarm though nothing changed, and in which test."""
    found = {"runs": QUIET_RUNS, "answers": LENGTH, "naive": 0, "monitor": 0}
    by_test = {}
    for run in range(QUIET_RUNS):
        rng = np.random.default_rng([size, run])
        model = Calibrated(rng.normal(size=size))
        scores, class_ids = rng.normal(size=LENGTH), rng.integers(0, 10, LENGTH)
        class_id, p_value = model.answers(scores, class_ids)
        monitor = model.monitor(10, run)
        monitor.update(class_id, p_value)
        for test in {alarm.test for alarm in monitor.alarms}:
            by_test[test] = by_test.get(test, 0) + 1
        found["monitor"] += bool(monitor.alarms)
        found["naive"] += naive_alarm(p_value, size, rng)
    return found | {"by test": by_test}


class Images:
    """Scores and predicted classes of images that were not trained on."""

    def __init__(self, path):
        with np.load(path) as arrays:
            features, labels = arrays["features"], arrays["labels"]
        known = drawn_classes(sorted(set(labels.tolist())), 0.5, 0)
        rng = np.random.default_rng(0)
        rows = [rng.permutation(np.flatnonzero(labels == k)) for k in known]
        train = np.concatenate([one[:TRAINED] for one in rows])
        held_out = np.concatenate([one[TRAINED:] for one in rows])
        y = np.searchsorted(known, labels[train])
        head = trained_head(features[train], y, len(known))
        model = OpenSetClassifier.from_outputs(
            head,
            outputs_of(head, features[train]),
            y,
            class_names=[str(k) for k in known],
            score=SCORE,
        )
        self.classes = len(known)
        self.known = model.predict_scores(features[held_out])
        is_unknown = ~np.isin(labels, known)
        self.unknown = model.predict_scores(features[is_unknown])
        self._noise = NOISE * self.known.unknown_score.std()
        threshold = threshold_for_true_positive_rate(
            self.known.unknown_score, RATE
        )
        self.accepted = float(
            (self.unknown.unknown_score <= threshold).mean().round(4)
        )

    def drawn(self, size, unknown_share, rng):
        """Scores and predicted classes of a stream."""
        is_unknown = rng.random(size) < unknown_share
        scores, class_ids = np.empty(size), np.empty(size, int)
        for kind, rows in (
            (self.known, ~is_unknown),
            (self.unknown, is_unknown),
        ):
            of = rng.integers(0, len(kind.unknown_score), rows.sum())
            scores[rows] = kind.unknown_score[of]
            class_ids[rows] = kind.predicted_class_id[of]
        return scores + self._noise * rng.normal(size=size), class_ids


def shortest_delay(images, share):
    """What no test can beat, about, in answers."""
    scores = images.known.unknown_score
    edges = np.quantile(scores, np.linspace(0, 1, BINS + 1)[1:-1])
    before, unknown = (
        np.bincount(np.searchsorted(edges, one), minlength=BINS) / len(one)
        for one in (scores, images.unknown.unknown_score)
    )
    after = (1 - share) * before + share * unknown
    divergence = float((after * np.log(after / before)).sum())
    return round(np.log(1 / ALPHA) / divergence)


def delays(images, size, share):
    """Answers from the change to the first alarm, and its test."""
    found = {
        "shortest": shortest_delay(images, share),
        "false alarms": 0,
        "delays": [],
        "first test": {},
    }
    for run in range(RUNS):
        rng = np.random.default_rng([size, run, 1])
        model = Calibrated(images.drawn(size, 0.0, rng)[0])
        monitor = model.monitor(images.classes, run)
        monitor.update(*model.answers(*images.drawn(BEFORE, 0.0, rng)))
        if monitor.alarms:
            found["false alarms"] += 1
            continue
        while not monitor.alarms and monitor.answers < BEFORE + LENGTH:
            monitor.update(*model.answers(*images.drawn(STEP, share, rng)))
        delay = None
        if monitor.alarms:
            first = monitor.alarms[0]
            delay = first.answer - BEFORE
            tests = found["first test"]
            tests[first.test] = tests.get(first.test, 0) + 1
        found["delays"].append(delay)
    return found


def main():
    """Measures what is not there yet, and writes after each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=pathlib.Path)
    given = parser.parse_args()
    found = {"false_alarm_rate": ALPHA}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))

    def keep(part, key, measure):
        own = found.setdefault(part, {})
        if key not in own:
            own[key] = measure()
            found["environment"] = environment()
            atomic_files.write_json(RESULT, found)
            print(part, key, own[key], flush=True)

    images = Images(given.features)
    found["unknown images accepted"] = images.accepted
    for size in CALIBRATIONS:
        for share in SHARES:
            keep(
                "delay",
                f"{size} calibration rows, {share:.0%} unknown",
                lambda size=size, share=share: delays(images, size, share),
            )
    for size in CALIBRATIONS:
        keep(
            "false alarms",
            f"{size} calibration rows",
            lambda size=size: false_alarms(size),
        )


if __name__ == "__main__":
    main()
