# SPDX-License-Identifier: Apache-2.0
"""The paper's equations in float64 NumPy, one example at a time.

Written for clarity, from the equations; tests compare the library with it.
"""

import math

import numpy as np
from scipy import spatial
from scipy import special
from scipy import stats


def rounding(*operands, roundings=4):
    """By how much float32 results of two graphs may differ.

    A few roundings of the largest operand. What is left of a difference, such
    as a small distance between large coordinates, is no more exact than that.
    """
    largest = max(np.abs(operand).max() for operand in operands)
    return roundings * float(np.finfo("float32").eps) * float(largest)


def distances(logits, centers):
    """d_ij = |z_i - c_j|."""
    logits, centers = np.float64(logits), np.float64(centers)
    return np.array(
        [[math.sqrt(((z - c) ** 2).sum()) for c in centers] for z in logits]
    )


def tuplet_loss(labels, d):
    """log(1 + sum over j != y of e^(d_y - d_j)), equation 2."""
    losses = []
    for y, row in zip(labels, d, strict=True):
        exponents = row[y] - np.delete(row, y)
        largest = max(exponents.max(), 0.0)
        if largest == 0.0:
            losses.append(math.log1p(np.exp(exponents).sum()))
        else:
            total = np.exp(exponents - largest).sum() + math.exp(-largest)
            losses.append(largest + math.log(total))
    return np.array(losses)


def anchor_loss(labels, d):
    """d_y, equation 4."""
    return np.array([row[y] for y, row in zip(labels, d, strict=True)])


def cac_loss(labels, d, anchor_weight=0.1):
    """Equation 5."""
    return tuplet_loss(labels, d) + anchor_weight * anchor_loss(labels, d)


def softmin(d):
    """e^-d_j over the sum of e^-d_k."""
    weights = np.exp(d.min(axis=1, keepdims=True) - d)
    return weights / weights.sum(axis=1, keepdims=True)


def gamma(d):
    """d (1 - softmin(d)), equation 8; 1 - p as the sum of the other shares."""
    p = softmin(d)
    others = np.array(
        [[np.delete(row, j).sum() for j in range(len(row))] for row in p]
    )
    return d * others


def served_answer(logits, centers, threshold, class_names, version, valid):
    """What a served model says of logits, by equations 8 and 9.

    `threshold` is a number or one for each row. Rows that are not valid are far
    from everything.
    """
    far = np.finfo("float32").max
    d = np.where(valid[:, np.newaxis], distances(logits, centers), far)
    scores = gamma(d)
    threshold = np.broadcast_to(np.float32(threshold), len(d))
    nearest = np.where(valid, scores.argmin(axis=1), -1)
    is_unknown = ~valid | (scores.min(axis=1) > threshold)
    class_id = np.where(is_unknown, -1, nearest)
    return {
        "class_id": np.int32(class_id),
        "label": np.array([*class_names, "unknown"])[class_id],
        "is_unknown": is_unknown,
        "unknown_score": scores.min(axis=1),
        "predicted_class_id": np.int32(nearest),
        "gamma": scores,
        "distances": d,
        "probabilities": softmin(d),
        "threshold": threshold,
        "model_version": np.full(len(d), version, "int64"),
        "is_valid": valid,
    }


def cac_gradient(labels, logits, centers, anchor_weight=0.1):
    """Gradient of the CAC loss of each example by its logits.

    dL/dd_j = -p_j for j != y, and the sum of those p_j plus anchor_weight for
    y; dd_j/dz = (z - c_j) / d_j, taken as 0 where d_j = 0.
    """
    logits, centers = np.float64(logits), np.float64(centers)
    d = distances(logits, centers)
    p = softmin(d)
    gradients = np.zeros_like(logits)
    for i, y in enumerate(labels):
        for j in range(len(centers)):
            by_distance = (
                anchor_weight + np.delete(p[i], y).sum() if j == y else -p[i, j]
            )
            if d[i, j] > 0:
                direction = (logits[i] - centers[j]) / d[i, j]
                gradients[i] += by_distance * direction
    return gradients


def distances_to_anchors(logits, magnitude=10.0):
    """`distances` to the anchors m e_j, without the (N, N) array of them.

    |z - m e_j|^2 is the sum of all z_k^2 but z_j^2, plus (z_j - m)^2.
    """
    logits = np.float64(logits)
    squares = logits**2
    others = squares.sum(axis=1, keepdims=True) - squares
    return np.sqrt(others + (logits - magnitude) ** 2)


def cac_gradient_to_anchors(labels, logits, magnitude=10.0, anchor_weight=0.1):
    """`cac_gradient` for the anchors m e_j, in O(N) for each example.

    The sum over j of w_j (z - m e_j), w_j = dL/dd_j / d_j, is z times the sum
    of all w_j, minus m w.
    """
    logits = np.float64(logits)
    d = distances_to_anchors(logits, magnitude)
    p = softmin(d)
    rows = np.arange(len(labels))
    others = p.copy()
    others[rows, labels] = 0.0
    by_distance = -p
    by_distance[rows, labels] = anchor_weight + others.sum(axis=1)
    weights = np.divide(by_distance, d, out=np.zeros_like(d), where=d > 0)
    return logits * weights.sum(axis=1, keepdims=True) - magnitude * weights


def central_differences(function, x, step=1e-6):
    """Gradient of the sum of `function(x)` by every entry of x, in float64."""
    gradient = np.zeros_like(x, dtype="float64")
    for index in np.ndindex(*x.shape):
        shift = np.zeros_like(gradient)
        shift[index] = step
        difference = np.sum(function(x + shift)) - np.sum(function(x - shift))
        gradient[index] = difference / (2 * step)
    return gradient


def near_centers(rng, centers, noise, rows):
    """Float32 logits around the centers, and the labels of these centers."""
    labels = rng.integers(0, len(centers), rows)
    logits = centers[labels] + noise * rng.standard_normal(
        (rows, centers.shape[1])
    )
    return logits.astype("float32"), labels


def relative_error(actual, expected):
    """Largest error relative to the expected value (absolute at 0)."""
    actual, expected = np.float64(actual), np.float64(expected)
    scale = np.where(expected == 0, 1.0, np.abs(expected))
    return np.max(np.abs(actual - expected) / scale)


def row_relative_error(actual, expected):
    """Largest error relative to the largest entry of its row."""
    actual, expected = np.float64(actual), np.float64(expected)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    return np.max(np.abs(actual - expected) / np.where(scale == 0, 1.0, scale))


def openmax(
    logits,
    labels,
    inputs,
    tail_size,
    rank,
    shift=1.0,
    form="probability",
    distance=spatial.distance.euclidean,
    latents=(),
):
    """OpenMax step by step, one input and one class at a time.

    Distances are those of logits, or of logits and latents: a pair of the
    latents of `logits` and of `inputs`.
    """
    logits, inputs = np.float64(logits), np.float64(inputs)
    vectors, unseen = logits, inputs
    if latents:
        vectors = np.concatenate([logits, np.float64(latents[0])], axis=1)
        unseen = np.concatenate([inputs, np.float64(latents[1])], axis=1)
    num_classes = logits.shape[1]
    means, fits = [], []
    for j in range(num_classes):
        own = vectors[(labels == j) & (logits.argmax(axis=1) == j)]
        means.append(own.mean(axis=0))
        tail = np.sort([distance(v, means[j]) for v in own])[-tail_size:]
        fits.append(stats.weibull_min.fit(tail - tail[0] + shift, floc=0.0))
        fits[j] = (fits[j][0], tail[0] - shift, fits[j][2])
    unknown = []
    for z, vector in zip(inputs, unseen, strict=True):
        revised, taken = z.copy(), 0.0
        for i, j in enumerate(np.argsort(-z)[:rank]):
            share = stats.weibull_min.cdf(distance(vector, means[j]), *fits[j])
            share *= 1.0 if rank is None else 1.0 - i / rank
            revised[j] = z[j] * (1.0 - share)
            taken += z[j] * share
        if form == "probability":
            unknown.append(special.softmax(np.r_[revised, taken])[-1])
        else:
            unknown.append(-special.logsumexp(revised))
    return np.array(unknown)
