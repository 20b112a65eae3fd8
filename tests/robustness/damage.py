# SPDX-License-Identifier: Apache-2.0
"""Damages files as disks, networks and people do."""

import os
import shutil


def _empty(rng, content):
    return b""


def _cut_off(rng, content):
    return content[: rng.integers(len(content))]


def _flip_bits(rng, content):
    changed = bytearray(content)
    for place in rng.integers(len(content), size=rng.integers(1, 20)):
        changed[place] ^= 1 << rng.integers(8)
    return bytes(changed)


def _zero_a_block(rng, content):
    start = rng.integers(len(content))
    end = min(len(content), start + rng.integers(1, 4097))
    return content[:start] + bytes(end - start) + content[end:]


def _repeat_a_piece(rng, content):
    start, end = sorted(rng.integers(len(content), size=2))
    return content[:end] + content[start:]


def _random_bytes(rng, content):
    return rng.bytes(rng.integers(1, 2000))


_CHANGES = {
    "empty": _empty,
    "cut off": _cut_off,
    "bits flipped": _flip_bits,
    "a block of zeros": _zero_a_block,
    "a piece twice": _repeat_a_piece,
    "random bytes": _random_bytes,
}


def damaged(rng, content):
    """Other bytes than these, and what was done to them."""
    kind = str(rng.choice(list(_CHANGES)))
    changed = _CHANGES[kind](rng, content) if content else b"\0"
    return changed, kind


def damage(rng, path):
    """Damages a file, removes it or puts a folder in its place.

    Returns:
        What was done.
    """
    if rng.random() < 0.15:
        os.unlink(path)
        if rng.random() < 0.5:
            return "removed"
        os.mkdir(path)
        return "a folder in its place"
    content, kind = damaged(rng, path.read_bytes())
    path.write_bytes(content)
    return kind


def copy(source, target):
    """A copy of a folder that can be damaged."""
    shutil.copytree(source, target)
    return target
