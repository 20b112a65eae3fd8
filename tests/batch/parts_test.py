# SPDX-License-Identifier: Apache-2.0
"""Parts: whole or not there, of one model and one list of inputs."""

import concurrent.futures
import json
import os
import threading

import pytest

from cac_tf import batch
from cac_tf import file_lock
from cac_tf.batch.classifier import Answer
from cac_tf.batch.parts import Parts
from cac_tf.batch.parts import _digest
from cac_tf.batch.parts import writing

ANSWER = Answer("cat", 0, False, 0.25, 0.75, 1.5, "cat")
SETTINGS = {"model": "abc", "threshold": None}


def blocks(tmp_path, count=7):
    paths = []
    for i in range(count):
        paths.append(str(tmp_path / f"{i}.png"))
        with open(paths[-1], "w") as file:
            file.write("x" * i)
    return batch.blocks_of(paths, block_size=2)


def fill(parts, positions):
    for position in positions:
        with writing(parts.path(position)) as write:
            for path in parts.blocks[position].files:
                write(path, ANSWER)


def test_shards_share_the_blocks(tmp_path):
    made = blocks(tmp_path)
    folder = tmp_path / "out"
    for i in (1, 2, 3):
        parts = Parts(folder, made, "csv", SETTINGS)
        fill(parts, parts.of_shard(i, 3))
    assert all(map(parts.is_finished, range(4)))
    assert sorted(os.listdir(folder)) == ["manifest.json"] + [
        f"part-0000{i}-of-00004.csv" for i in (1, 2, 3, 4)
    ]
    assert [parts.counts(i).accepted for i in range(4)] == [2, 2, 2, 1]
    assert list(parts.of_shard()) == [0, 1, 2, 3]


def test_an_attempt_that_failed_is_made_again(tmp_path):
    """Under the same name: nothing is left of it."""
    parts = Parts(tmp_path / "out", blocks(tmp_path), "csv", SETTINGS)
    with (
        pytest.raises(KeyboardInterrupt),
        writing(parts.path(1)) as write,
    ):
        write("a long key that is not written again", ANSWER)
        raise KeyboardInterrupt
    assert not parts.is_finished(1)
    assert os.listdir(tmp_path / "out") == ["manifest.json"]
    fill(parts, [1])
    assert len(os.listdir(tmp_path / "out")) == 2
    with open(parts.path(1)) as file:
        assert "a long key" not in file.read()


def test_many_may_start_at_once(tmp_path):
    """One writes the manifest, and all of them compare theirs with it."""
    made = blocks(tmp_path)
    for attempt in range(20):
        folder, begin = tmp_path / f"out{attempt}", threading.Barrier(8)

        def start(number, folder=folder, begin=begin):
            settings = {**SETTINGS, "model": number % 2}
            begin.wait()
            try:
                fill(Parts(folder, made, "csv", settings), [number % 2])
            except file_lock.LockedError:
                return number % 2  # Of the part: the manifest was accepted.
            except ValueError as error:
                assert "contains answers from another model" in str(error)
                return None
            return number % 2

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(start, range(8)))
        with open(folder / "manifest.json") as file:
            first = json.load(file)["model"]
        assert found == [n % 2 if n % 2 == first else None for n in range(8)]


def test_a_part_is_written_by_one_process_at_a_time(tmp_path):
    parts = Parts(tmp_path / "out", blocks(tmp_path), "csv", SETTINGS)
    with writing(parts.path(0)) as write:
        write("a", ANSWER)
        with (
            pytest.raises(
                file_lock.LockedError, match=f"written by process {os.getpid()}"
            ),
            writing(parts.path(0)),
        ):
            pass
        fill(parts, [1])
    assert parts.is_finished(0) and parts.counts(0).accepted == 1


def test_parts_of_something_else_are_refused(tmp_path):
    made = blocks(tmp_path)
    folder = tmp_path / "out"
    fill(Parts(folder, made, "csv", SETTINGS), [0])
    before = sorted(os.listdir(folder))
    with pytest.raises(ValueError, match=r"model: abc there, other now"):
        Parts(folder, made, "csv", {**SETTINGS, "model": "other"})
    with pytest.raises(ValueError, match=r"ending: csv there, jsonl now"):
        Parts(folder, made, "jsonl", SETTINGS)
    with pytest.raises(ValueError, match=r"parts: 4 there, 3 now; inputs: "):
        Parts(folder, made[:3], "csv", SETTINGS)
    with open(made[2].files[0], "w") as file:
        file.write("a file of another size")
    with pytest.raises(ValueError, match=r"\(inputs: [0-9a-f]{64} there, "):
        Parts(folder, made, "csv", SETTINGS)
    assert sorted(os.listdir(folder)) == before
    (folder / "manifest.json").write_text('{"format":')
    with pytest.raises(ValueError, match=r"manifest.json is damaged"):
        Parts(folder, made, "csv", SETTINGS)


def test_a_path_that_no_file_can_have(tmp_path):
    made = batch.blocks_of(["a.png\0b.png"])
    assert len(Parts(tmp_path / "out", made, "csv", SETTINGS).blocks) == 1


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"contains other files \(such as thesis.txt\)"
    ):
        Parts(tmp_path, [], "csv", SETTINGS)


def test_inputs_are_known_by_their_blocks(tmp_path):
    """The same files in other blocks, or another array, are other inputs."""
    files = [f"{tmp_path}/{i}" for i in range(4)]
    made = [
        (files, 2),
        (files[::-1], 2),
        ([*files[:3], "d", "e"], 3),
        (["a.npz:x", "b.npz"], 2),
        (["a.npz:y", "b.npz"], 2),
    ]
    digests = {_digest(batch.blocks_of(*one)) for one in made}
    assert len(digests) == 5


def test_inputs_are_known_by_what_their_names_lead_to(tmp_path, monkeypatch):
    """Not by names and sizes alone."""
    digests = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for content in ("one", "two"):
            with open("0.png", "w") as file:
                file.write(content)
            # A clock of a file system may be coarse.
            os.utime("0.png", ns=(0, 10**9 * len(digests)))
            digests.add(_digest(batch.blocks_of(["0.png"])))
        assert _digest(batch.blocks_of(["0.png"])) in digests
        digests.add(_digest(batch.blocks_of([os.path.abspath("0.png")])))
    assert len(digests) == 6


def test_the_lock_of_a_part_whose_process_was_killed_goes(tmp_path):
    """After the part was in place; a process that lives keeps its own."""
    parts = Parts(tmp_path / "out", blocks(tmp_path), "csv", SETTINGS)
    fill(parts, [0])
    folder, name = os.path.split(parts.path(0))
    lock = os.path.join(folder, f".{name}.lock")
    with open(lock, "w") as file:
        file.write("123\nelsewhere\n")
    assert parts.is_finished(0)
    assert not os.path.exists(lock)
    with file_lock.writing(parts.path(0), lock):
        assert parts.is_finished(0)
        assert os.path.exists(lock)
