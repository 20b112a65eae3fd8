# SPDX-License-Identifier: Apache-2.0
"""What a run may write, delete and resume, and that it is alone."""

import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import textwrap

import keras
import pytest

from cac_tf import experiments
from cac_tf.experiments.environment import environment
from cac_tf.experiments.run_folder import FORMAT
from cac_tf.experiments.run_folder import RunFolder
from cac_tf.experiments.run_folder import RunFolderError
from tests.conftest import ROOT

SETTINGS, DATA = {"epochs": 3}, {"mean": 1}


def files(folder):
    """All files under a folder with their contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(pathlib.Path(folder).rglob("*"))
        if path.is_file()
    }


def write(folder, *names):
    for name in names:
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def start(folder, settings=SETTINGS, data=DATA, overwrite=False):
    with RunFolder.open(folder, settings, data, overwrite) as opened:
        return opened


# Names that a run also uses.
NAMES = (
    ".writing-notes.txt",
    "checkpoints/classifier.npz",
    "metrics.json",
    "model.keras",
    "scores/thesis.txt",
    "serving/1/saved_model.pb",
    "thesis.txt",
)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "{",
        "[]",
        '{"architectures": ["BertModel"]}',
        '{"format": 4, "settings": {"epochs": 3}}',
    ],
)
def test_a_folder_that_is_no_run_keeps_all_its_files(
    tmp_path, config, overwrite
):
    """Whatever their names are; and nothing suggests to overwrite it."""
    write(tmp_path, *NAMES)
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    before = files(tmp_path)
    with pytest.raises(RunFolderError) as error:
        start(tmp_path, overwrite=overwrite)
    assert "overwrite" not in str(error.value)
    assert files(tmp_path) == before


def test_overwriting_deletes_what_the_run_wrote(tmp_path):
    folder = tmp_path / "run"
    start(folder)
    write(
        folder,
        "metrics.json",
        "checkpoints/encoder.npz",
        "model.keras",
        "serving/1/variables/variables.index",
        "serving/1/saved_model.pb",
        "serving/README.md",
        "serving/models.config",
        "serving/requests/classify.json",
        "tensorboard/classifier/train/events.out.tfevents.1.host.2.0.v2",
    )
    (folder / ".cac_tf-writing-1.npz").touch()
    (folder / "serving" / ".cac_tf-writing-2").mkdir()
    # A comparison of scores, of the model that goes.
    names = ("metrics.json", "scores.npz", "config.json", ".cac_tf-lock")
    write(folder, *(f"scores/{name}" for name in names))
    write(folder, "thesis.txt", "notes/thesis.txt")
    start(folder, {"epochs": 4}, overwrite=True)
    assert sorted(files(folder)) == [
        "config.json",
        "notes/thesis.txt",
        "scores/.cac_tf-lock",
        "thesis.txt",
    ]
    assert not (folder / "serving").exists()
    # The same run again.
    assert RunFolder.find(folder, {"epochs": 4}) is not None


@pytest.mark.parametrize(
    "name",
    [
        "serving/2/saved_model.pb",
        "checkpoints/mine.txt",
        "tensorboard/x/notes",
        "scores/mine.txt",
    ],
)
def test_a_file_of_somebody_else_among_the_runs(tmp_path, name):
    """An exported version 2, say, would be served in place of a new 1."""
    start(tmp_path / "run")
    write(tmp_path / "run", "model.keras", "serving/1/saved_model.pb", name)
    before = files(tmp_path / "run")
    with pytest.raises(RunFolderError, match=name):
        start(tmp_path / "run", {"epochs": 4}, overwrite=True)
    assert files(tmp_path / "run") == before


def test_resumed_and_refused(tmp_path):
    """A kill before config.json is complete; then settings that differ."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".cac_tf-writing-config.json").touch()
    opened = start(folder)
    assert set(files(folder)) == {"config.json"}
    write(folder, "checkpoints/classifier.npz")
    assert RunFolder.find(folder, SETTINGS) == opened == start(folder)
    before = files(folder)
    with pytest.raises(RunFolderError, match="epochs: 3 there, 4 now"):
        start(folder, {"epochs": 4})
    with pytest.raises(RunFolderError, match="different data .mean: 1 there"):
        start(folder, data={"mean": 2})
    assert files(folder) == before


def test_another_environment_is_told(tmp_path):
    """The number of threads decides the last bits of the weights."""
    assert start(tmp_path / "run").notes == ()
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    threads = config["environment"]["intra_op_threads"]
    assert threads == environment()["intra_op_threads"] > 0
    config["environment"]["intra_op_threads"] = threads + 6
    path.write_text(json.dumps(config))
    (note,) = start(tmp_path / "run").notes
    assert f"intra_op_threads: {threads + 6} there, {threads} now" in note


@pytest.mark.parametrize(
    ("content", "is_finished"),
    [
        (None, False),
        ("", False),
        ('{"format": 4, "auroc"', False),
        ("[]", False),
        (json.dumps({"format": FORMAT - 1}), False),
        (json.dumps({"format": FORMAT}), True),
    ],
)
def test_a_run_is_finished_when_its_metrics_are_whole(
    tmp_path, content, is_finished
):
    folder = start(tmp_path / "run")
    if content is not None:
        (tmp_path / "run" / "metrics.json").write_text(content)
    assert folder.is_finished == is_finished


def test_a_run_that_begins_again_has_no_model(tmp_path):
    results = ("metrics.json", "model.keras", "MODEL_CARD.md")
    with RunFolder.open(tmp_path / "run", SETTINGS, DATA) as folder:
        for name in results:
            pathlib.Path(folder.file(name)).touch()
        folder.begin(SETTINGS, DATA)
        assert not {*results} & {*os.listdir(folder.path)}


def test_nothing_is_left_of_what_was_refused(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        RunFolder.open(tmp_path / "a" / "run", SETTINGS, DATA) as folder,
    ):
        try:
            raise ZeroDivisionError
        finally:
            folder.remove_if_nothing_was_trained()
    assert not (tmp_path / "a" / "run").exists()


def test_a_folder_deleted_during_the_run(tmp_path):
    """The error says so, and the same command starts again."""
    with (
        pytest.raises(RunFolderError, match="was deleted"),
        RunFolder.open(tmp_path / "run", SETTINGS, DATA) as folder,
    ):
        shutil.rmtree(tmp_path / "run")
        open(folder.file("model.keras"), "x").close()
    assert not (tmp_path / "run").exists()
    # Deleted, and started by another process.
    with (
        pytest.raises(RunFolderError, match="was deleted"),
        RunFolder.open(tmp_path / "run", SETTINGS, DATA) as folder,
    ):
        shutil.rmtree(tmp_path / "run")
        start(tmp_path / "run")
        open(folder.file("model.keras")).close()
    start(tmp_path / "run")


class Deletes(keras.callbacks.Callback):
    """Somebody deletes the folder of the run in the second epoch."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            shutil.rmtree(self.folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:These classes keep")
def test_a_training_whose_folder_is_deleted(tmp_path):
    """It ends at the next checkpoint, and leaves nothing in its way."""
    config = experiments.ExperimentConfig(
        {"dataset": "digits", "test_fraction": 0.8}, recipe={"epochs": 3}
    )
    run = tmp_path / "run"

    def tell(kind, *values):
        return [Deletes(run)] if kind == "callbacks" else None

    with pytest.raises(RunFolderError, match="Run the same command"):
        experiments.train(config, run, tell=tell)
    assert not run.exists()
    assert experiments.train(config, run).folder.is_finished


def holding(folder, then="time.sleep(600)"):
    """A process that holds a folder's lock, once it says so."""
    code = f"""
        import sys, time
        from cac_tf import file_lock
        with file_lock.writing(sys.argv[1], sys.argv[1] + "/.cac_tf-lock"):
            print("held", flush=True)
            {then}
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_one_process_at_a_time(tmp_path):
    """The second says who the first is; after kill -9 the next goes on."""
    start(tmp_path / "run")
    write(tmp_path / "run", "model.keras", "serving/1/saved_model.pb")
    with holding(tmp_path / "run") as process:
        before = files(tmp_path / "run")
        for overwrite in (False, True):
            with pytest.raises(RunFolderError) as error:
                start(tmp_path / "run", overwrite=overwrite)
            who = f"process {process.pid} on {socket.gethostname()}"
            assert who in str(error.value)
        assert files(tmp_path / "run") == before
        process.send_signal(signal.SIGKILL)
        process.wait()
    # The file of the killed process is still there.
    assert set(before) - set(files(tmp_path / "run")) == set()
    start(tmp_path / "run")
    assert set(before) - set(files(tmp_path / "run")) == {".cac_tf-lock"}


def test_a_lock_is_not_inherited_by_processes_that_outlive_it(tmp_path):
    with holding(
        tmp_path, "import os; os.system('sleep 5 &'); os._exit(0)"
    ) as process:
        process.wait()
        start(tmp_path)
        assert os.listdir(tmp_path) == ["config.json"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError, match="cannot be written: .*file"):
        start(tmp_path / "file")


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """The existence of the file stands in; a killed process's is broken."""
    fcntl = pytest.importorskip("fcntl")

    def flock(*_):
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    lock_file = tmp_path / "run" / ".cac_tf-lock"
    who = rf"process {os.getpid()} on {socket.gethostname()}\. Wait"
    with pytest.warns(UserWarning, match="flock not supported"):
        with (
            RunFolder.open(tmp_path / "run", SETTINGS, DATA),
            pytest.raises(RunFolderError, match=who),
        ):
            start(tmp_path / "run")
        assert not lock_file.exists()
        killed = subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"],
            capture_output=True,
            text=True,
            check=True,
        )
        lock_file.write_text(f"{killed.stdout}{socket.gethostname()}\n")
        start(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == ["config.json"]
