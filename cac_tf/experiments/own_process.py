# SPDX-License-Identifier: Apache-2.0
"""Calls a function in a process of its own.

What it does to its process (determinism, memory, a crash) does not affect the
caller.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback


def call(function, arguments, log_file):
    """Calls a function in a new process; returns what went wrong, or None."""
    os.makedirs(os.path.dirname(log_file), exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    reader, writer = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_called, args=(function, arguments, writer))
    try:
        with _interrupts_ignored(), _output_to(log_file):
            process.start()
        writer.close()  # Ours: only the other process keeps the pipe open.
        problem = reader.recv()
    except EOFError:
        process.join()
        problem = f"its process exited with status {process.exitcode}"
        if process.exitcode < 0:
            problem = f"its process was killed by signal {-process.exitcode}"
    finally:
        # After Ctrl-C nobody waits for it. (It may be killed at any moment.)
        if process.pid is not None:
            process.terminate()
            process.join()
        reader.close()
    return None if problem is None else f"{problem} (log: {log_file})"


@contextlib.contextmanager
def _interrupts_ignored():
    """Processes started within leave Ctrl-C to this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _output_to(log_file):
    """Processes started within print to a file, from their first import on."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # Another process that does the same run may be writing there.
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    own = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in own:
            os.dup2(log, number)
        yield
    finally:
        os.close(log)
        for number, copy in own:
            os.dup2(copy, number)
            os.close(copy)


def _called(function, arguments, writer):
    """What the other process does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # In a log, too, lines of both streams stand in their order.
    sys.stdout.reconfigure(line_buffering=True)
    problem = None
    try:
        function(*arguments)
    except Exception as error:
        problem = str(error) or type(error).__name__
        traceback.print_exc()
        print(f"error: {problem}", file=sys.stderr)
    writer.send(problem)


def _end_with_parent():
    """Ends this process when the one that started it is gone, even if killed.

    Otherwise it would continue to train, beside the same run started again.
    """
    multiprocessing.parent_process().join()
    os._exit(1)
