# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from cac_tf import atomic_files


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    atomic_files.write_text(path, "old")
    with (
        pytest.raises(RuntimeError),
        atomic_files.replacing(path) as temporary,
    ):
        with open(temporary, "w") as file:
            file.write("half of the n")
        raise RuntimeError("the disk is full")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("make", ["replacing", "new_folder"])
@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("disk full")],
)
def test_a_full_disk_names_the_file(tmp_path, make, error):
    path = str(tmp_path / "a.npz")
    with (
        pytest.raises(OSError, match="Cannot write: .*a.npz") as raised,
        getattr(atomic_files, make)(path),
    ):
        raise error
    assert raised.value.errno == (error.errno or errno.EIO)
    assert raised.value.filename == path
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("make", ["replacing", "new_folder"])
def test_a_folder_that_is_not_there_is_said_of_the_file(tmp_path, make):
    path = str(tmp_path / "none" / "a.npz")
    with (
        pytest.raises(OSError, match="Cannot write: No such file") as raised,
        getattr(atomic_files, make)(path),
    ):
        pass
    assert raised.value.filename == path


def test_folders_are_on_the_disk_too(tmp_path, monkeypatch):
    """Without that, a file that was replaced may be lost with the power."""
    synced, fsync = [], os.fsync

    def noting(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    atomic_files.write_text(tmp_path / "a.txt", "text")
    with atomic_files.new_folder(tmp_path / "one") as temporary:
        open(os.path.join(temporary, "part"), "w").close()
    assert os.path.dirname(synced[0]) == str(tmp_path)
    assert synced[1:] == [
        str(tmp_path),
        os.path.join(temporary, "part"),
        temporary,
        str(tmp_path),
    ]


KILLED = """
import os, signal, sys
from cac_tf import atomic_files
with atomic_files.replacing_alone(sys.argv[1]) as temporary:
    with open(temporary, "w") as file:
        file.write("a long text of which nothing may stay")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_write_leaves_nothing_in_the_end(tmp_path):
    """The next attempt uses the same temporary file."""
    path = tmp_path / "file.txt"
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path)])
        assert killed.returncode == -signal.SIGKILL
        assert sorted(os.listdir(tmp_path)) == [".file.txt", ".file.txt.lock"]
    with (
        atomic_files.replacing_alone(path) as temporary,
        open(temporary, "w") as file,
    ):
        file.write("short")
    assert os.listdir(tmp_path) == ["file.txt"]
    assert path.read_text() == "short"


def test_a_file_is_written_once(tmp_path):
    """Of many that begin at the same time, one writes and the others wait."""
    path = tmp_path / "file.txt"
    begin, written = threading.Barrier(8), []

    def write(temporary):
        time.sleep(0.1)
        with open(temporary, "w") as file:
            file.write("whole")
        written.append(temporary)

    def start():
        begin.wait()
        atomic_files.write_once(path, write)
        assert path.read_text() == "whole"
        written.append("read")

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert written == [str(tmp_path / ".file.txt")] + 8 * ["read"]
    assert os.listdir(tmp_path) == ["file.txt"]
    # One that fails leaves nothing.
    with pytest.raises(NotADirectoryError):
        atomic_files.write_once(tmp_path / "other", os.rmdir)
    assert os.listdir(tmp_path) == ["file.txt"]


def test_files_are_readable_by_others(tmp_path):
    umask = os.umask(0o022)
    try:
        atomic_files.write_json(tmp_path / "a.json", {"a": 1})
        with atomic_files.new_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(tmp_path / "a.json").st_mode) == 0o644
    assert stat.S_IMODE(os.stat(tmp_path / "folder").st_mode) == 0o755


def test_json_without_nan(tmp_path):
    with pytest.raises(ValueError):
        atomic_files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert os.listdir(tmp_path) == []
    atomic_files.write_json(tmp_path / "a.json", {"name": "Bär"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"name": "Bär"}


def test_a_failed_folder_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        atomic_files.new_folder(tmp_path / "one") as temporary,
    ):
        open(os.path.join(temporary, "part"), "w").close()
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    (tmp_path / "two").mkdir()
    with (
        pytest.raises(FileExistsError),
        atomic_files.new_folder(tmp_path / "two"),
    ):
        pass


def test_leftovers_of_a_kill_are_removed(tmp_path):
    (tmp_path / "serving" / ".cac_tf-writing-abc").mkdir(parents=True)
    (tmp_path / "serving" / ".cac_tf-writing-abc" / "saved_model.pb").touch()
    (tmp_path / ".cac_tf-writing-xyz.npz").touch()
    (tmp_path / "mine.npz").touch()
    atomic_files.remove_leftovers(tmp_path)
    names = {p.name for p in tmp_path.rglob("*")}
    assert names == {"serving", "mine.npz"}


def test_links_and_modes_stay(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "model.txt", tmp_path / "model.txt"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    atomic_files.write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600
    with atomic_files.replacing_alone(link) as temporary:
        atomic_files.write_text(temporary, "newer")
    assert link.is_symlink()
    assert target.read_text() == "newer"
    assert target.stat().st_mode & 0o777 == 0o600
