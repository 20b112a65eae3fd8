# SPDX-License-Identifier: Apache-2.0
"""Beam's answers are those of `cac-predict`, by key and byte for byte."""

import importlib
import pathlib
import shutil

import numpy as np
import PIL.Image
import pytest
from absl import flags

from cac_tf import batch
from cac_tf.train import cac_predict

beam = pytest.importorskip("apache_beam")
assert_that = pytest.importorskip("apache_beam.testing.util").assert_that
transforms = importlib.import_module("cac_tf.batch.beam")

# What runs in this process, without looking for a runner to download.
IN_PROCESS = "BundleBasedDirectRunner"
TWO_PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"


@pytest.fixture
def model(served_pictures):
    return str(served_pictures / "3")


@pytest.fixture(scope="module")
def photos(trained_pictures, tmp_path_factory):
    """Known and unknown pictures, and one that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for i in (*range(7), *range(24, 31)):
        PIL.Image.fromarray(trained_pictures[1][i]).save(folder / f"{i:02}.png")
    (folder / "text.png").write_text("no image")
    return folder


def is_equal(expected):
    """Of pairs of a key and an `Answer`, in any order."""

    def check(found):
        found, wanted = dict(found), dict(expected)
        assert found.keys() == wanted.keys()
        for key, answer in found.items():
            numbers, theirs = [
                (one.unknown_score or 0.0, *one.probabilities)
                for one in (answer, wanted[key])
            ]
            # Batches of another size may round in another way.
            np.testing.assert_allclose(numbers, theirs, rtol=1e-5, atol=1e-6)
            same = {"unknown_score": None, "probabilities": ()}
            assert answer._replace(**same) == wanted[key]._replace(**same)

    return check


def test_answers_by_key(model, photos, trained_pictures):
    """Files and arrays together; what failed comes by itself."""
    _, pictures = trained_pictures
    classifier = batch.Classifier.load(model)
    (block,) = batch.blocks_of(map(str, sorted(photos.iterdir())))
    plain = list(batch.answers_of(classifier, block))
    rows = pictures[36:40]
    plain += enumerate(classifier.classify(rows))
    given = [(key, pathlib.Path(key).read_bytes()) for key, _ in plain[:-4]]
    given += [*enumerate(rows), ("too small", rows[0, 1:])]
    with beam.Pipeline(IN_PROCESS) as pipeline:
        found = (
            pipeline
            | beam.Create(given)
            | transforms.Classify(model, max_batch_size=4)
        )
        good = [pair for pair in plain if not pair[1].error]
        assert len(good) == len(plain) - 1
        assert_that(found.answers, is_equal(good))
        assert_that(
            found.failed
            | beam.MapTuple(lambda key, one: (key, bool(one.error))),
            lambda pairs: (
                sorted(pairs)
                == [(str(photos / "text.png"), True), ("too small", True)]
                or pytest.fail(str(pairs))
            ),
            label="failed",
        )


def test_another_threshold(model, trained_pictures):
    _, pictures = trained_pictures
    with beam.Pipeline(IN_PROCESS) as pipeline:
        found = (
            pipeline
            | beam.Create(list(enumerate(pictures[:5])))
            | transforms.Classify(model, threshold=-1.0)
        )
        rejected = (
            found.answers
            | beam.Values()
            | beam.Map(lambda one: (one.is_unknown, one.threshold))
        )
        assert_that(
            rejected,
            lambda all_of_them: (
                all_of_them == [(True, -1.0)] * 5
                or pytest.fail(str(all_of_them))
            ),
        )


def predict(model, *arguments):
    values = flags.FlagValues()
    cac_predict.define_flags(values)
    rest = values(["cac-predict", f"--model={model}", *map(str, arguments)])
    return cac_predict.main(values, rest[1:])


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param([f"--runner={IN_PROCESS}"], id="in process"),
        pytest.param(
            ["--runner=DirectRunner", f"--beam_options={TWO_PROCESSES}"],
            id="two processes",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_parts_are_those_of_one_process(
    model, photos, tmp_path, runner, capsys
):
    command = [photos, "--files_per_part=4"]
    assert predict(model, *command, f"--output={tmp_path / 'plain'}/") == 1
    summary = capsys.readouterr().err.splitlines()[0]
    by_beam = [*command, f"--output={tmp_path / 'beam'}/", *runner]
    assert predict(model, *by_beam) == 1
    assert summary in capsys.readouterr().err
    plain, found = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("plain", "beam")
    )
    assert len(plain) == 5  # The manifest and four parts.
    assert found == plain
    # What is there is not made again; what is not there is.
    missing = tmp_path / "beam" / "part-00002-of-00004.csv"
    missing.unlink()
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "beam").iterdir()}
    assert predict(model, *by_beam) == 1
    assert missing.read_bytes() == plain[missing.name]
    assert all(p.stat().st_mtime_ns == times[p] for p in times)


def test_workers_are_told_absolute_paths(model, photos, tmp_path, monkeypatch):
    """They start in folders of their own."""
    told = []
    monkeypatch.setattr(
        transforms,
        "write_parts",
        lambda made, positions, *others: told.append(
            [(made.path(i), made.blocks[i].files) for i in positions]
        ),
    )
    monkeypatch.chdir(photos)
    command = ("00.png", "24.png", f"--runner={IN_PROCESS}")
    predict(model, *command, "--output=out/")
    files = (str(photos / "00.png"), str(photos / "24.png"))
    part = str(photos / "out" / "part-00001-of-00001.csv")
    assert told == [[(part, files)]]
    shutil.rmtree(photos / "out")


def test_a_part_that_another_process_finished_is_kept(tmp_path):
    """Without even asking the model, which is not loaded here."""
    path = tmp_path / "part-00001-of-00001.csv"
    path.write_text("finished")
    worker = transforms._WritePart("no model", None)
    worker.process((str(path), batch.blocks_of(["a.png"])[0]))
    assert path.read_text() == "finished"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--beam_options=--x"], "beam_options has no effect without --runner"),
        (["--runner=DirectRunner"], "needs a folder as --output"),
        (
            ["--runner=DirectRunner", "--output=a.csv"],
            "needs a folder as --output",
        ),
        (
            ["--runner=DirectRunner", "--output=a/", "--copy_to=b"],
            "cannot be combined",
        ),
    ],
)
def test_bad_command_lines(model, photos, arguments, message):
    with pytest.raises(ValueError, match=message):
        predict(model, photos, *arguments)
