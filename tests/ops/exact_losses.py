# SPDX-License-Identifier: Apache-2.0
"""The CAC loss of hard rows in 60 digits, by the definition of the distances.

`exact_losses.npz` keeps the values: `python -m tests.ops.exact_losses` makes
it, and a slow test makes it again and compares. Rows lie near, on and far from
anchors. The logits are made from `numpy.random.RandomState`, whose numbers are
promised never to change.

Losses and gradients are those of the tuplet and of the anchor loss apart, for
any weight of the anchor loss. Of rows with many classes the gradient is kept
at a few entries only.
"""

import decimal
import pathlib
import typing

import numpy as np

FILE = pathlib.Path(__file__).with_suffix(".npz")
CLASS_COUNTS = (2, 3, 6, 20, 100, 1000, 10000)
ANCHOR_WEIGHTS = (0.0, 0.1, 10.0)
MAGNITUDE = 10
_NOISES = (3.0, 1.0, 0.1, 1e-2, 1e-4, 1e-7)
_SIZES = (1e-3, 1e3, 1e4, 1e6, 1e9, 1e12)
_NUM_ENTRIES = 16
_DIGITS = decimal.Context(prec=60)


class Rows(typing.NamedTuple):
    """Exact values of B rows, float64."""

    tuplet: np.ndarray  # (B,)
    anchor: np.ndarray  # (B,)
    own_share: np.ndarray  # (B,), 1 - softmin(d)_y
    entries: np.ndarray  # (B, E), indices of logits
    tuplet_gradient: np.ndarray  # (B, E), by these logits
    anchor_gradient: np.ndarray  # (B, E)
    largest: np.ndarray  # (B, 3), of the gradient for ANCHOR_WEIGHTS


def logits_and_labels(num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows, (B, N) float32 and (B,) int32."""
    random = np.random.RandomState(num_classes)
    rows, labels = [], []

    def add(row, label):
        rows.append(np.float32(row))
        labels.append(label)

    for noise in (*_NOISES, 0.0):
        for is_own in (True, False):
            row = noise * random.standard_normal(num_classes)
            near = random.randint(num_classes)
            row[near] += MAGNITUDE
            add(row, near if is_own else (near + 1) % num_classes)
    for size in _SIZES:
        row = size * random.standard_normal(num_classes)
        add(row, random.randint(num_classes))
        # Far away along the diagonal, and as far apart as anywhere.
        add(size + random.standard_normal(num_classes), row.argmax())
    for value in (0.0, -3.0, 1e4):
        add(np.full(num_classes, value), random.randint(num_classes))
    return np.stack(rows), np.array(labels, "int32")


def _exact_row(logits, label):
    """One row of `Rows`."""
    with decimal.localcontext(_DIGITS):
        z = [decimal.Decimal(float(x)) for x in logits]
        squares = sum(x * x for x in z)
        d = [(squares - x * x + (x - MAGNITUDE) ** 2).sqrt() for x in z]
        shortest = min(d)
        shares = [(shortest - x).exp() for x in d]
        total = sum(shares)
        others = total - shares[label]
        tuplet = d[label] - shortest + total.ln()
        # dL/dd_j / d_j, and 0 on the anchor j.
        inverses = [1 / x if x else x for x in d]
        weights = [
            -share / total * inverse
            for share, inverse in zip(shares, inverses, strict=True)
        ]
        inverse = inverses[label]
        weights[label] = others / total * inverse
        weight = sum(weights)
        of_tuplet = [
            x * weight - MAGNITUDE * w for x, w in zip(z, weights, strict=True)
        ]
        of_anchor = [x * inverse for x in z]
        of_anchor[label] -= MAGNITUDE * inverse
        largest = [
            max(
                abs(t + decimal.Decimal(str(scale)) * a)
                for t, a in zip(of_tuplet, of_anchor, strict=True)
            )
            for scale in ANCHOR_WEIGHTS
        ]
    nearest = np.argsort(-logits, kind="stable")[:2]
    entries = np.r_[label, nearest, np.abs(logits).argmax()]
    spread = np.linspace(0, len(logits) - 1, _NUM_ENTRIES - len(entries))
    entries = np.r_[entries, spread.astype(int)]
    return Rows(
        tuplet=float(tuplet),
        anchor=float(d[label]),
        own_share=float(others / total),
        entries=entries,
        tuplet_gradient=[float(of_tuplet[j]) for j in entries],
        anchor_gradient=[float(of_anchor[j]) for j in entries],
        largest=[float(x) for x in largest],
    )


def exact_rows(num_classes: int) -> Rows:
    """The exact values of `logits_and_labels`; a minute for 10,000 classes."""
    rows = [
        _exact_row(*pair)
        for pair in zip(*logits_and_labels(num_classes), strict=True)
    ]
    return Rows(*(np.array(column) for column in zip(*rows, strict=True)))


def stored_rows(num_classes: int) -> Rows:
    """The same from the file."""
    with np.load(FILE) as content:
        return Rows(
            *(content[f"{name}_{num_classes}"] for name in Rows._fields)
        )


if __name__ == "__main__":
    np.savez_compressed(
        FILE,
        **{
            f"{name}_{num_classes}": column
            for num_classes in CLASS_COUNTS
            for name, column in exact_rows(num_classes)._asdict().items()
        },
    )
