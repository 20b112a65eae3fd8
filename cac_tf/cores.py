# SPDX-License-Identifier: Apache-2.0
"""The CPU cores that this process may use."""

import collections
import concurrent.futures
import os


def usable_cores():
    """Number of CPU cores that this process may run on.

    Example:

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_ahead(function, arguments):
    """As `map`, by a thread for each core, which begin few calls ahead.

    Example:

    >>> list(map_ahead(abs, range(-3, 1)))
    [3, 2, 1, 0]
    """
    threads, pending = usable_cores(), collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for argument in arguments:
            pending.append(pool.submit(function, argument))
            if len(pending) > threads + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
