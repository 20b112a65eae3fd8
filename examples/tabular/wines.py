# SPDX-License-Identifier: Apache-2.0
"""A scikit-learn pipeline for table rows that can answer "unknown".

    python examples/tabular/wines.py --unknown=class_2

Learns two of the three cultivars in scikit-learn's wine data, from 13 chemical
measurements of each wine, and never sees the third.

With two known classes there are two logits, in which a third class may lie
close to one of the others. This example therefore uses the score "mahalanobis",
which reads the 64 features before the logits. (It warns that there are fewer
wines than features, and says what it does about it.)
"""

import argparse

import numpy as np
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cac_tf.sklearn import OpenSetClassifier

UNKNOWN = "unknown cultivar"


def make_pipeline_of(score):
    """Scales each measurement, then classifies or rejects."""
    classifier = OpenSetClassifier(
        epochs=30,
        learning_rate=0.01,
        batch_size=16,
        rejection_score=score,
        true_positive_rate=0.9,
        validation_fraction=0.3,
        unknown_label=UNKNOWN,
        random_state=0,
    )
    return make_pipeline(StandardScaler(), classifier)


def main(arguments=None):
    """Trains on two cultivars, and tests on all three."""
    wines = load_wine()
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choices = wines.target_names.tolist()
    parser.add_argument("--unknown", choices=choices, default="class_2")
    parser.add_argument("--score", default="mahalanobis")
    flags = parser.parse_args(arguments)

    names = wines.target_names[wines.target]
    is_known = names != flags.unknown
    x_unknown = wines.data[~is_known]
    x_train, x_test, y_train, y_test = train_test_split(
        *(wines.data[is_known], names[is_known]),
        test_size=0.3,
        stratify=names[is_known],
        random_state=0,
    )
    pipeline = make_pipeline_of(flags.score).fit(x_train, y_train)

    rows = np.concatenate([x_test, x_unknown])
    is_known = np.arange(len(rows)) < len(x_test)
    is_rejected = pipeline.predict(rows) == UNKNOWN
    found = {
        "accuracy": pipeline.score(x_test, y_test),
        "auroc": roc_auc_score(is_known, pipeline.score_samples(rows)),
        "known wines rejected": is_rejected[is_known].mean(),
        "unknown wines rejected": is_rejected[~is_known].mean(),
    }
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    return found


if __name__ == "__main__":
    main()
