# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are either the old or the new, never half of one."""

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile

from cac_tf import file_lock

# Nobody else's files begin with this, so they may be deleted.
_PREFIX = ".cac_tf-writing-"


@contextlib.contextmanager
def replacing(path):
    """Gives a temporary path beside `path` that becomes `path` on success.

    If the body fails (a full disk, a kill), an earlier file stays as it was.
    The temporary name keeps the file's suffix, because some writers choose
    their format by it. A link stays one: the file that it leads to is replaced.
    The permissions of an earlier file stay, too.

    Example:

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers.txt")
    >>> with replacing(path) as temporary, open(temporary, "w") as file:
    ...     _ = file.write("1 2 3")
    >>> open(path).read()
    '1 2 3'
    """
    path = os.path.realpath(path)
    with _said_of(path):
        handle, temporary = tempfile.mkstemp(
            prefix=_PREFIX,
            suffix=os.path.splitext(path)[1],
            dir=os.path.dirname(path),
        )
    os.close(handle)
    with _becoming(path, temporary):
        yield temporary


@contextlib.contextmanager
def replacing_alone(path):
    """As `replacing`, but only one process at a time may write `path`.

    The temporary name is the same in every attempt, and hidden. So what a
    killed process leaves is written again by the next one.

    Raises:
        file_lock.LockedError: another process is writing `path`.
    """
    path = os.path.realpath(path)
    temporary = _hidden(path)
    with (
        file_lock.writing(path, f"{temporary}.lock"),
        _becoming(path, temporary),
    ):
        yield temporary


def unlock_killed(path):
    """Deletes the lock of a process that was killed when `path` was written.

    For a finished file, which no other attempt of `replacing_alone` follows.
    """
    lock_file = f"{_hidden(os.path.realpath(path))}.lock"
    if os.path.exists(lock_file):
        # It goes with the context, unless a process that lives has it.
        with (
            contextlib.suppress(file_lock.LockedError),
            file_lock.writing(path, lock_file),
        ):
            pass


def write_once(path, write):
    """Makes a file that never changes, if it is not there.

    Of several processes, the first one writes it, and the others wait.

    Args:
        path: of the file.
        write: function that takes a temporary path, and writes the file there.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "name.txt")
    >>> for name in ("first", "second"):
    ...     write_once(path, lambda to: pathlib.Path(to).write_text(name))
    >>> path.read_text()
    'first'
    """
    if os.path.exists(path):
        return
    path = os.path.realpath(path)
    temporary = _hidden(path)
    with file_lock.writing(path, f"{temporary}.lock", waits=True):
        # Unless another process was done before this one had the lock.
        if not os.path.exists(path):
            with _becoming(path, temporary):
                write(temporary)


@contextlib.contextmanager
def _becoming(path, temporary):
    """A temporary file that takes the place of `path`, or is deleted."""
    with _said_of(path):
        try:
            # Of an attempt that was killed, nothing stays.
            open(temporary, "wb").close()
            yield
            os.chmod(temporary, _mode_of(path))
            _sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync(os.path.dirname(path))


@contextlib.contextmanager
def _said_of(path):
    """Errors of the system, such as a full disk, name what was to be written.

    They name nothing, or a temporary name that nobody gave.
    """
    try:
        yield
    except OSError as error:
        named = error.filename
        if named not in (None, _hidden(path)) and not is_leftover(
            os.path.basename(named)
        ):
            raise
        reason = error.strerror or str(error)
        raise OSError(
            error.errno or errno.EIO, f"Cannot write: {reason}", path
        ) from error


def _sync(path):
    """Waits until a file, or what a folder lists, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Of a folder, some network file systems do not take it.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def _hidden(path):
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}")


@contextlib.contextmanager
def new_folder(path):
    """Gives a temporary folder beside `path` that becomes `path` on success.

    Raises:
        FileExistsError: `path` exists.
    """
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise FileExistsError(f"{path} already exists.")
    parent = os.path.dirname(path)
    with _said_of(path):
        temporary = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        try:
            yield temporary
            os.chmod(temporary, 0o777 & ~_umask())
            for folder, _, files in os.walk(temporary):
                for name in files:
                    _sync(os.path.join(folder, name))
                _sync(folder)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _sync(parent)


def is_leftover(name):
    """Whether a file or folder of this name was left by a killed write."""
    return name.startswith(_PREFIX)


def remove_leftovers(folder):
    """Deletes what writes that were killed left anywhere under `folder`."""
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            if is_leftover(name):
                path = os.path.join(parent, name)
                if name in folders:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)


def write_json(path, value):
    """Writes `value` as indented JSON; NaN and infinity are refused."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def write_text(path, text):
    """Writes `text` as UTF-8.

    Names of files may hold bytes that are no UTF-8, which Python keeps as lone
    surrogates. These are written as escapes, e.g. \\udcff, which JSON reads
    as what they were.
    """
    with (
        replacing(path) as temporary,
        open(
            temporary, "w", encoding="utf-8", errors="backslashreplace"
        ) as file,
    ):
        file.write(text)


def _mode_of(path):
    """The permissions of a file, or those of a new one."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return 0o666 & ~_umask()


def _umask():
    """The process's umask: tempfile makes entries only for their owner."""
    value = os.umask(0)
    os.umask(value)
    return value
