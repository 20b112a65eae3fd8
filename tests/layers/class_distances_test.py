# SPDX-License-Identifier: Apache-2.0
"""Learnt centers: distances, gradients, and the losses of them."""

import keras
import numpy as np
import pytest
from scipy import special

from cac_tf import losses
from cac_tf import metrics
from cac_tf.layers import ClassDistances
from cac_tf.metrics.streaming import AnchorLoss
from cac_tf.metrics.streaming import TupletLoss
from tests import execution
from tests import oracle

# (K, D): as many coordinates as classes, more, fewer.
SHAPES = [(3, 3), (3, 5), (5, 3)]


def built(shape, **options):
    layer = ClassDistances(shape[0], magnitude=4.0, **options)
    layer.build((None, shape[1]))
    return layer


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_distances_and_gradients_of_moved_centers(mode, rng, shape):
    """By the inputs and by the centers, which start at the anchors."""
    layer = built(shape)
    start = np.asarray(layer.centers)
    assert [v.path for v in layer.trainable_variables] == [layer.centers.path]
    np.testing.assert_allclose(np.linalg.norm(start, axis=1), 4.0, rtol=1e-6)
    if shape[0] <= shape[1]:
        np.testing.assert_array_equal(start, 4.0 * np.eye(*shape))
    else:
        np.testing.assert_array_equal(start, built(shape).centers)
        apart = oracle.distances(start, start)
        assert (apart + 9.0 * np.eye(len(apart))).min() > 0.5
    centers = start + np.float32(0.5 * rng.standard_normal(shape))
    layer.centers.assign(centers)
    inputs = np.float32(rng.standard_normal((4, shape[1])))
    weights = np.float32(rng.standard_normal((4, shape[0])))

    def of_centers(c, x):
        return layer.stateless_call([c], [], x)[0]

    call = execution.compiled(layer, mode)
    np.testing.assert_allclose(
        call(inputs), -oracle.distances(inputs, centers), rtol=1e-6
    )
    by_centers = execution.gradient(
        lambda c, x: of_centers(c, x) * weights, mode
    )(centers, inputs)
    by_inputs = execution.gradient(
        lambda x, c: of_centers(c, x) * weights, mode
    )(inputs, centers)
    for actual, function, at in (
        (by_centers, lambda c: oracle.distances(inputs, c), centers),
        (by_inputs, lambda x: oracle.distances(x, centers), inputs),
    ):
        expected = oracle.central_differences(
            lambda value, function=function: -function(value) * weights,
            np.float64(at),
        )
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def test_the_losses_and_metrics_of_it(rng):
    """They take it as it is; its cross-entropy is the tuplet loss."""
    layer = built((4, 6))
    inputs = np.float32(3 * rng.standard_normal((10, 6)))
    labels = rng.integers(0, 4, 10)
    d = oracle.distances(inputs, np.asarray(layer.centers))
    outputs = layer(inputs)
    logits = np.float32(rng.standard_normal((10, 4)))
    tuplet, anchor = (
        oracle.tuplet_loss(labels, d),
        oracle.anchor_loss(labels, d),
    )
    own = special.log_softmax(np.float64(logits), axis=1)[range(10), labels]
    options = {"from_distances": True, "reduction": None}
    for loss, expected in (
        (losses.CACLoss(anchor_weight=0.3, **options), tuplet + 0.3 * anchor),
        (losses.AnchorLoss(**options), anchor),
        (losses.TupletLoss(**options), tuplet),
        (losses.CrossEntropyLoss(reduction=None), tuplet),
        (
            keras.losses.SparseCategoricalCrossentropy(True, reduction=None),
            tuplet,
        ),
    ):
        actual = np.asarray(loss(labels, outputs))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    center = losses.CenterLoss(0.2, **options)
    assert center.READS == ("logits", "class_distances")
    np.testing.assert_allclose(
        center(labels, {"logits": logits, "class_distances": outputs}),
        -own + 0.1 * anchor**2,
        rtol=1e-5,
    )
    labels[0] = d[0].argmin()
    for metric, expected in (
        (metrics.KnownAccuracy(from_distances=True), d.argmin(1) == labels),
        (AnchorLoss(from_distances=True), d[range(10), labels]),
        (
            TupletLoss(from_distances=True),
            oracle.tuplet_loss(labels, d),
        ),
    ):
        metric.update_state(labels, outputs)
        np.testing.assert_allclose(
            metric.result(), np.mean(expected), rtol=1e-5
        )


@pytest.mark.usefixtures("mixed_bfloat16")
def test_trains_in_a_plain_model_and_is_saved(tmp_path, rng):
    """Beside logits, in float32 whatever the policy; or stays where it was."""
    inputs = keras.Input([4], dtype="float32")
    model = keras.Model(
        inputs,
        {
            "one": ClassDistances(3, name="one")(inputs),
            "fixed": ClassDistances(3, learnt=False, name="fixed")(inputs),
        },
    )
    x, labels = oracle.near_centers(rng, 2 * np.eye(3, 4), 0.3, rows=60)
    loss = losses.CACLoss(from_distances=True)
    model.compile(keras.optimizers.SGD(0.5), {"one": loss, "fixed": loss})
    model.fit(x, {"one": labels, "fixed": labels}, epochs=8, verbose=0)
    start = 10 * np.eye(3, 4)
    np.testing.assert_array_equal(model.get_layer("fixed").centers, start)
    centers = np.asarray(model.get_layer("one").centers)
    assert np.abs(centers - start).max() > 0.1
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found = loaded.predict(x, verbose=0)
    assert found["one"].dtype == np.float32
    np.testing.assert_allclose(
        found["one"], -oracle.distances(x, centers), rtol=1e-5
    )
    config = loaded.get_layer("fixed").get_config()
    assert config == model.get_layer("fixed").get_config()


def test_bad_arguments():
    for count in (1, 0, 2.5, np.nan, "3"):
        with pytest.raises(ValueError, match="at least 2"):
            ClassDistances(count)
    with pytest.raises(ValueError, match="magnitude must be a number"):
        ClassDistances(3, magnitude=0.0)
    for shape in ((3,), (2, 3, 3)):
        with pytest.raises(ValueError, match=r"of shape \(batch, width\)"):
            ClassDistances(3)(np.zeros(shape, "float32"))
