# SPDX-License-Identifier: Apache-2.0
"""The files that somebody names: by path, folder, pattern, or on a stream."""

import functools
import glob
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from cac_tf.data.sources.image_folder import image_files


def paths_of(inputs: Iterable[str], lines: Iterable[str] = ()) -> Iterator[str]:
    """Paths of files, in the order of the inputs.

    Args:
        inputs: strings. A folder stands for its files at any depth, sorted,
            except hidden ones; a pattern such as "photos/*.jpg" for the files
            that match it, sorted ("**" for folders at any depth); "-" for
            `lines`. Every other string is a path, whether it exists or not.
        lines: paths, one per line, e.g. standard input.

    Yields:
        Paths as strings.

    Raises:
        ValueError: a folder without files, or a pattern that matches none.

    Example:

    >>> list(paths_of(["b.png", "-"], lines=["a.png\\n"]))
    ['b.png', 'a.png']
    """
    for one in inputs:
        if one == "-":
            yield from filter(None, (line.rstrip("\n") for line in lines))
        elif os.path.isdir(one):
            found = sorted(map(str, image_files(pathlib.Path(one))))
            if not found:
                raise ValueError(f"The folder {one} contains no files.")
            yield from found
        elif not os.path.exists(one) and glob.has_magic(one):
            found = sorted(
                filter(os.path.isfile, glob.iglob(one, recursive=True))
            )
            if not found:
                raise ValueError(f"No file matches the pattern {one}.")
            yield from found
        else:
            yield one


def not_written(
    paths: Iterable[str], written: Mapping[str, str]
) -> Iterator[str]:
    """The paths; none may be what is written, or lie in such a folder.

    Args:
        paths: of inputs.
        written: files and folders, by the name of the option they are from.

    Raises:
        ValueError: an input would be overwritten, or is an earlier output.

    Example:

    >>> list(not_written(["a.csv", "b.csv"], {"output": "b.csv"}))
    Traceback (most recent call last):
    ValueError: b.csv is an input and belongs to --output=b.csv. Choose \
another output.
    """
    real_folder = functools.lru_cache(os.path.realpath)
    real = {name: os.path.realpath(path) for name, path in written.items()}
    for path in paths:
        folder, name = os.path.split(path)
        own = os.path.join(real_folder(folder), name)
        for option, other in real.items():
            if own == other or own.startswith(os.path.join(other, "")):
                raise ValueError(
                    f"{path} is an input and belongs to --{option}="
                    f"{written[option]}. Choose another output."
                )
        yield path
