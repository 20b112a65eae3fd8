# SPDX-License-Identifier: Apache-2.0
import json
import os
import stat

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
