# SPDX-License-Identifier: Apache-2.0
"""The CPU cores that this process may use."""

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
