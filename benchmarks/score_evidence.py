# SPDX-License-Identifier: Apache-2.0
"""Which score to take where nothing unknown is known: every rule, every case.

    TFDS_DATA_DIR=... python benchmarks/score_evidence.py --kept=FOLDER \
        --texts=FOLDER --network=NETWORK.keras [--tiny_dir=...]

Heads by CAC and cross-entropy, with a hidden layer and linear, on the sentence
vectors of BANKING77 (25, 50 and 75 % of the classes known, three draws) and on
the features of a frozen network for the `neal` splits of CIFAR10, CIFAR+10,
CIFAR+50 and TinyImageNet, of which a part of the images is taken. For each:
AUROC of scores on the head's features ("test"), and of those that read features
on the embedding; the same with a quarter of the known classes left out, three
times; and, of validation images, against images whose halves are of two
classes ("composites"): what rules that choose a score may look at. Networks
trained from scratch are those whose results are kept already.

Writes benchmarks/results/score_evidence.json, in which what is there already is
not measured again. `compared` says what each rule gives; docs/choose.md has the
table.
"""

import argparse
import csv
import functools
import hashlib
import itertools
import json
import pathlib

import numpy as np
from frozen_head import LOSSES
from frozen_head import outputs_of
from frozen_head import trained_head

from cac_tf import atomic_files
from cac_tf import scores
from cac_tf.data import load_open_set_dataset
from cac_tf.experiments.environment import environment
from cac_tf.metrics import auroc
from cac_tf.models import OpenSetClassifier
from cac_tf.models import pretrained_backbone
from cac_tf.models.computed_outputs import ComputedOutputs
from cac_tf.training.computed_features import computed_features

RESULTS = pathlib.Path(__file__).parent / "results"
RESULT = RESULTS / "score_evidence.json"
NOTE = (
    "Photos: frozen EfficientNet-Lite0 at 128 pixels, which has seen the kinds "
    "of these classes on ImageNet, the unknown ones too."
)
PHOTOS = [("tinyimagenet", 0), ("cifar+10", 0), ("cifar+50", 0)]
PHOTOS += [("cifar10", trial) for trial in range(5)]
SHARES_KNOWN, DRAWS = (25, 50, 75), 3
LEFT_OUT, LEFT_OUT_DRAWS = 0.25, 3
PARTS = ("train", "validation", "known_test", "unknown_test")
# How many of a data set's images are taken, in each of `PARTS`.
SHARES = {"tinyimagenet": (0.5, 1, 1, 0.25), "cifar+10": (0.08, 0.3, 0.2, 1)}
OTHER_SHARES = (0.08, 0.3, 0.2, 0.2)
RECIPE = {"magnitude": 5.0, "epochs": 30, "batch_size": 64}
_OF_FEATURES = ("relative_mahalanobis", "knn", "nnguide", "vim")
# (OpenMax in its forms, she, gen, entropy and mahalanobis are behind on all
# networks of docs/benchmarks.md, but for mahalanobis on digits.)
SCORES = (
    *("gamma", "min_distance", "max_logit", "energy", "max_softmax"),
    *("class_z_score", *_OF_FEATURES),
)
ON_EMBEDDING = tuple(f"{name} of the embedding" for name in _OF_FEATURES)
# More examples tell an AUROC no better.
MOST_ROWS, MOST_COMPOSITES = 3000, 300


def texts(folder, share, draw):
    """Vectors and labels of BANKING77's parts, a share of the classes known."""
    vectors = np.load(folder / "banking77_minilm.npy").astype("float32")
    with open(folder / "banking77.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    split = np.array([row["split"] for row in rows])
    names, ids = np.unique([row["label"] for row in rows], return_inverse=True)
    order = np.random.default_rng(draw).permutation(len(names))
    known = np.sort(order[: round(share / 100 * len(names))])
    is_known = np.isin(ids, known)

    def part(rows):
        return vectors[rows], known.searchsorted(ids[rows])

    return {
        "train": part((split == "train") & is_known),
        "validation": part((split == "dev") & is_known),
        "known_test": part((split == "test") & is_known),
        "unknown_test": part((split == "test") & ~is_known),
    }


def photos(backbone, kept, name, trial, data_dir):
    """Frozen features and labels of some images of a split's parts."""
    place = {} if data_dir is None else {"data_dir": data_dir}
    dataset = load_open_set_dataset(name, trial=trial, **place)
    found = {}
    for part, share in zip(PARTS, SHARES.get(name, OTHER_SHARES), strict=True):
        examples = getattr(dataset, part)
        # By their content, in all trials alike.
        rows = [
            row
            for row, image in enumerate(examples.images)
            if int.from_bytes(
                hashlib.sha256(np.ascontiguousarray(image)).digest()[:2], "big"
            )
            < share * 65536
        ]
        chosen = examples.take(rows)
        features = computed_features(backbone, chosen.images, kept)
        found[part] = np.float32(features), chosen.labels
    examples = dataset.validation
    rows = np.random.default_rng(0).permutation(examples.size)[:MOST_COMPOSITES]
    images = composites(examples.take(np.sort(rows)))
    found["composites"] = backbone.predict(images, verbose=0), None
    return found


def composites(examples):
    """Left and right halves of images of different classes."""
    rng = np.random.default_rng(0)
    images, labels = np.asarray(examples.images), examples.labels
    left = rng.permutation(len(images))
    right = rng.integers(0, len(images), len(left))
    while (same := labels[left] == labels[right]).any():
        right[same] = rng.integers(0, len(images), same.sum())
    found = images[left]
    middle = images.shape[2] // 2
    found[:, :, middle:] = images[right][:, :, middle:]
    return found


def without_classes(parts, draw):
    """The parts with a quarter of the known classes taken for unknown."""
    labels = parts["train"][1]
    classes = labels.max() + 1
    count = min(max(1, round(LEFT_OUT * classes)), classes - 2)
    # The draws share no class, as far as there are enough.
    order = np.random.default_rng(0).permutation(classes)
    out = np.take(order, range(draw * count, (draw + 1) * count), mode="wrap")
    left = np.setdiff1d(np.arange(classes), out)

    def of(part, classes):
        x, y = parts[part]
        rows = np.isin(y, classes)
        return x[rows], classes.searchsorted(y[rows])

    out = np.sort(out)
    unknown = [of(part, out) for part in ("train", "validation")]
    return {
        "train": of("train", left),
        "validation": of("validation", left),
        "known_test": of("validation", left),
        "unknown_test": tuple(map(np.concatenate, zip(*unknown, strict=True))),
    }


def candidates(width, num_classes):
    """Scores of the features by the names of the table."""
    found = {name: scores.get(name) for name in SCORES}
    found["knn, 10 neighbours"] = scores.KNN(10, name="knn, 10 neighbours")
    for name, dimensions in (
        ("vim, N", num_classes),
        ("vim, D/4", width // 4),
        ("vim, D/2", width // 2),
    ):
        if dimensions < width:
            found[name] = scores.ViM(dimensions, name=name)
    return found


def measured(parts, loss, hidden):
    """AUROC of each score on one head: `test`, and `composites` if there are.

    Args:
        parts: inputs and labels by the names of `PARTS`, and `composites`.
        loss, hidden: as of `trained_head`.
    """
    rng = np.random.default_rng(0)
    taken = dict(parts)
    for part in ("known_test", "unknown_test"):
        x, y = parts[part]
        rows = np.sort(rng.permutation(len(x))[:MOST_ROWS])
        taken[part] = x[rows], y[rows]
    x, y = taken["train"]
    classes = int(y.max()) + 1
    head = trained_head(x, y, classes, loss=loss, hidden=hidden, **RECIPE)
    outputs = {part: outputs_of(head, x) for part, (x, _) in taken.items()}
    model = OpenSetClassifier.from_outputs(
        head,
        outputs["train"],
        y,
        class_names=[str(i) for i in range(classes)],
        score="gamma",
    )
    rules = candidates(model.network.width_of_features, classes)
    statistics = {}
    for part in ("train", "validation"):
        own = [
            score
            for score in rules.values()
            if score.WANTS_HELD_OUT_DATA is (part == "validation")
        ]
        data = ComputedOutputs(outputs[part])
        statistics |= model.fit_scores(own, data, taken[part][1])[0]
    read = {
        part: _all_outputs(model, ComputedOutputs(one))
        for part, one in outputs.items()
        if part != "train"
    }
    by_name = {
        name: (score, statistics[score.name], read)
        for name, score in rules.items()
        if score.name in statistics
    }
    if hidden is not None:
        of_embedding = {
            part: {**one, "features": taken[part][0]}
            for part, one in read.items()
        }
        known = {"logits": outputs["train"]["logits"], "features": x}
        for name, label in zip(_OF_FEATURES, ON_EMBEDDING, strict=True):
            score = scores.get(name)
            fitted = score.fit(y, **{key: known[key] for key in score.READS})
            by_name[label] = score, fitted, of_embedding
    found = {}
    for key, pair in (
        ("test", ("known_test", "unknown_test")),
        ("composites", ("validation", "composites")),
    ):
        if set(pair) <= set(taken):
            found[key] = {
                name: _auroc(score, own, [values[part] for part in pair])
                for name, (score, own, values) in by_name.items()
            }
    return found


def _auroc(score, statistics, both):
    values = [
        score.of_arrays(*score.arguments_of(outputs), **statistics)
        for outputs in both
    ]
    return round(float(auroc(*values)), 4)


def _all_outputs(model, data):
    names = ("logits", "features", "distances", "gamma")
    batches = [one for one, *_ in model.iterate_outputs(data, names=names)]
    return {
        name: np.concatenate([one[name] for one in batches]) for name in names
    }


def with_networks_from_scratch(runs):
    """The same, and what is kept of networks trained from scratch."""
    found = {}
    for path in sorted((RESULTS / "training").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if "chosen_by_known_data" in run and "_paper" not in path.stem:
            dataset, _, trial = path.stem.partition("_")
            loss, trial = trial.rsplit("_", 1)
            values = run["metrics"]["scores"]
            chosen = run["chosen_by_known_data"]
            found[f"{dataset} {trial}", loss] = values, chosen
    digits = json.loads((RESULTS / "digits_scores.json").read_text("utf-8"))
    for loss, trials in digits["runs"].items():
        for trial, run in enumerate(trials):
            found[f"digits {trial}", loss] = run["scores"], run["chosen"]
    every = {case: dict(heads) for case, heads in runs.items()}
    for (case, loss), (values, chosen) in found.items():
        aurocs = {name: one["auroc"] for name, one in values.items()}
        every.setdefault(case, {})[f"{loss}, from scratch"] = {
            "test": aurocs,
            # The score with the largest AUROC is the choice.
            "composites": {chosen: 1.0},
        }
    return every


def _fixed(name):
    return lambda run: name


def _by_composites(run):
    found = run.get("composites", {})
    names = [name for name in found if name in SCORES] or list(found)
    return max(names, key=found.get, default=None)


def _by_mean(run, names=SCORES):
    draws = run.get("left_out", ())
    if len(draws) < 2:
        return None
    return max(names, key=lambda one: sum(draw[one] for draw in draws))


def _by_rank(run):
    draws = run.get("left_out", ())
    if len(draws) < 2:
        return None
    orders = [sorted(SCORES, key=draw.get) for draw in draws]
    return max(SCORES, key=lambda one: sum(o.index(one) for o in orders))


def _unless_better(default):
    """The default, unless another is better by a standard error."""

    def rule(run):
        chosen = _by_mean(run)
        if chosen is None:
            return None
        ahead = [draw[chosen] - draw[default] for draw in run["left_out"]]
        error = np.std(ahead, ddof=1) / np.sqrt(len(ahead))
        return chosen if np.mean(ahead) > error else default

    return rule


RULES = {
    **{name: _fixed(name) for name in (*SCORES, *ON_EMBEDDING)},
    "classes left out, best mean": _by_mean,
    "classes left out, best mean rank": _by_rank,
    "classes left out, knn unless better": _unless_better("knn"),
    "composites of two images": _by_composites,
}


def family(case):
    """The data set, whatever the trial; CIFAR10, +10 and +50 are one."""
    name = case.split()[0]
    return "cifar" if name.startswith("cifar") else name


def compared(runs):
    """Mean AUROC and regret of each rule, by kind of head and by family.

    Returns:
        Dict: kind of head -> rule -> family -> `networks`, `mean`, `regret`
        (how far it is behind the best of `SCORES` of each network, on average)
        and `worst`. A rule that can choose for no network of a family lacks
        it. "chosen on the others": the score that is best on average over the
        other families.
    """
    runs = with_networks_from_scratch(runs)
    found = {}
    for rule, choose in RULES.items():
        for case, heads in runs.items():
            for head, run in heads.items():
                chosen, test = choose(run), run.get("test") or {}
                if chosen not in test:
                    continue
                best = max(test[one] for one in SCORES if one in test)
                own = found.setdefault(head, {}).setdefault(rule, {})
                own.setdefault(family(case), []).append((test[chosen], best))
    for rules in found.values():
        for own in rules.values():
            for name, values in own.items():
                given, best = np.transpose(values)
                own[name] = {
                    "networks": len(values),
                    "mean": round(float(given.mean()), 4),
                    "regret": round(float((best - given).mean()), 4),
                    "worst": round(float((best - given).max()), 4),
                }
        rules["chosen on the others"] = {
            name: {**rules[chosen][name], "score": chosen}
            for name in rules[SCORES[0]]
            if (chosen := _best_on_others(rules, name))
        }
    return found


def _best_on_others(rules, family_left_out):
    def mean(name):
        return np.mean(
            [
                one["mean"]
                for family, one in rules[name].items()
                if family != family_left_out
            ]
        )

    return max(SCORES, key=mean)


def cases(given):
    """Names of the cases, and functions that give their parts."""
    for share in SHARES_KNOWN:
        for draw in range(DRAWS):
            name = f"banking77 {share} % {draw}"
            yield name, functools.partial(texts, given.texts, share, draw)
    backbone = pretrained_backbone(given.network, image_size=128)
    for name, trial in PHOTOS:
        folder = given.tiny_dir if name == "tinyimagenet" else None
        yield (
            f"{name} {trial}",
            functools.partial(
                photos, backbone, given.kept, name, trial, folder
            ),
        )


def main():
    """Measures what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", required=True, help="folder of features")
    parser.add_argument("--texts", required=True, type=pathlib.Path)
    parser.add_argument("--network", required=True)
    parser.add_argument("--tiny_dir", help="TFDS folder of TinyImageNet")
    given = parser.parse_args()
    found = {"note": NOTE, "recipe": RECIPE, "runs": {}}
    if RESULT.exists():
        found = json.loads(RESULT.read_text(encoding="utf-8"))
    for case, read in cases(given):
        parts, heads = None, found["runs"].setdefault(case, {})
        for loss, hidden in itertools.product(LOSSES, (True, False)):
            head = f"{loss}, {'hidden' if hidden else 'linear'}"
            if head in heads:
                continue
            parts = parts or read()
            width = (512 if len(parts["train"][0][0]) > 512 else 256) * hidden
            heads[head] = {
                **measured(parts, loss, width or None),
                "left_out": [
                    measured(without_classes(parts, draw), loss, width or None)[
                        "test"
                    ]
                    for draw in range(LEFT_OUT_DRAWS)
                ],
            }
            found["compared"] = compared(found["runs"])
            found["environment"] = environment()
            atomic_files.write_json(RESULT, found)
            print(case, head, heads[head]["test"], flush=True)


if __name__ == "__main__":
    main()
