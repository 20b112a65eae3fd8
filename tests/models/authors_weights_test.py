# SPDX-License-Identifier: Apache-2.0
"""The authors' released weights, against outputs of their own network."""

import os
import pathlib
import pickle

import keras
import numpy as np
import pytest

from cac_tf.models.authors_weights import import_authors_weights

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

OFFICIAL = os.environ.get("CAC_TF_OFFICIAL_DIR")
released = pytest.mark.skipif(
    not OFFICIAL,
    reason="CAC_TF_OFFICIAL_DIR is not set: no released weights here",
)
CHECKPOINTS = {
    "MNIST_0": "MNIST_0",
    "CIFAR10_0": "CIFAR10_0",
    "CIFARplus10_0": "CIFAR+10_0",
}


def golden(name):
    file = np.load(pathlib.Path(OFFICIAL) / "golden.npz")
    prefix = f"{name}_"
    return {
        key.removeprefix(prefix): file[key]
        for key in file.files
        if key.startswith(prefix)
    }


def load(name, kind="CACclassifierAnchorLoss", **changes):
    """A released checkpoint, with the normalization of the golden outputs."""
    expected = golden(name)
    options = {
        "class_names": [str(i) for i in expected["known"]],
        "image_shape": expected["images"].shape[1:],
        "mean": expected["mean"].tolist(),
        "std": expected["std"].tolist(),
        **changes,
    }
    path = pathlib.Path(OFFICIAL) / f"{CHECKPOINTS[name]}_{kind}.pth"
    return import_authors_weights(path, **options), expected


@released
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_distances_and_gamma_are_those_of_the_authors(name, tmp_path):
    model, expected = load(name)
    for candidate in (model, _saved_and_loaded(model, tmp_path)):
        actual = candidate.predict_scores(expected["images"])
        for key in ("logits", "distances", "gamma"):
            np.testing.assert_allclose(
                getattr(actual, key), expected[key], atol=1e-4, rtol=0
            )
    np.testing.assert_array_equal(
        model.centers, 10 * np.eye(len(model.centers))
    )


def _saved_and_loaded(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


@released
def test_training_mode_matches_pytorch():
    """A step's running statistics: those of PyTorch are unbiased."""
    model, expected = load("MNIST_0", dropout=0.0)
    # One image: of more, the biased variance would hardly differ.
    images = expected["images"][:1]
    path = pathlib.Path(OFFICIAL) / "MNIST_0_CACclassifierAnchorLoss.pth"
    state = torch.load(path, "cpu", weights_only=True)["net"]
    x = (images / 255.0 - expected["mean"]) / expected["std"]
    x = torch.from_numpy(np.float32(x)).permute(0, 3, 1, 2)
    convolved = torch.nn.functional.conv2d(
        x, state["encoder.conv1.weight"], padding=1
    )
    norm = torch.nn.BatchNorm2d(64)
    norm.load_state_dict(
        {
            key.removeprefix("encoder.bn1."): value
            for key, value in state.items()
            if key.startswith("encoder.bn1.")
        }
    )
    norm.train()(convolved)
    model.classifier.trainable = True  # It is frozen in the model.
    model.classifier(images, training=True)
    own = model.classifier.get_layer("openset_cnn").get_layer("norm1")
    np.testing.assert_allclose(
        own.moving_mean, norm.running_mean.numpy(), atol=1e-5
    )
    np.testing.assert_allclose(
        own.moving_variance, norm.running_var.numpy(), rtol=3e-5
    )
    variance = convolved.var(dim=(0, 2, 3), unbiased=False).numpy()
    before = state["encoder.bn1.running_var"].numpy()
    biased = 0.9 * before + 0.1 * variance
    assert np.abs(biased / norm.running_var.numpy() - 1).max() > 6e-5


@released
def test_a_cross_entropy_classifier():
    model, expected = load("CIFAR10_0", "closedSetClassifier")
    assert model.score.name == "max_softmax"
    scores = model.predict_scores(expected["images"])
    known = np.isin(expected["labels"], expected["known"])
    labels = np.searchsorted(expected["known"], expected["labels"][known])
    assert np.mean(scores.predicted_class_id[known] == labels) > 0.85


@released
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"class_names": ["a", "b"]},
            "has 6 classes, but the split of the data set has 2",
        ),
        ({"image_shape": (32, 32, 1)}, "with 3 channels; the data set has 1"),
        ({"image_shape": (64, 64, 3)}, "of 32x32 pixels; the data set has 64x"),
        ({"image_shape": (33, 33, 3)}, "of 32x32 pixels; the data set has 33x"),
    ],
)
def test_a_checkpoint_of_another_data_set(changes, message):
    with pytest.raises(ValueError, match=message):
        load("CIFAR10_0", **changes)


class Evil:
    """Would create a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.path),)


def test_a_file_that_holds_code(tmp_path):
    marker = tmp_path / "marker"
    torch.save({"net": Evil(str(marker))}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="more than weights"):
        import_authors_weights(
            tmp_path / "evil.pth", ["a", "b"], (32, 32, 3), 0.5, 0.25
        )
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Evil(str(marker))))
    with pytest.raises(ValueError, match="more than weights"):
        import_authors_weights(
            tmp_path / "plain.pth", ["a", "b"], (32, 32, 3), 0.5, 0.25
        )
    assert not marker.exists()


def test_files_that_are_no_checkpoints(tmp_path):
    options = (["a", "b"], (32, 32, 3), 0.5, 0.25)
    with pytest.raises(ValueError, match="^File not found"):
        import_authors_weights(tmp_path / "none.pth", *options)
    torch.save({"net": {"weight": torch.zeros(3)}}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="not a checkpoint of the paper's"):
        import_authors_weights(tmp_path / "other.pth", *options)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="not a checkpoint of the paper's"):
        import_authors_weights(tmp_path / "list.pth", *options)
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(ValueError, match="text.pth"):
        import_authors_weights(tmp_path / "text.pth", *options)
