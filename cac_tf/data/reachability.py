# SPDX-License-Identifier: Apache-2.0
"""Whether a server can be reached, before somebody tries for minutes."""

import contextlib
import socket
import threading
import time
import urllib.parse
import urllib.request

# Together for all servers. Who needs longer to connect needs days to download.
SECONDS = 3.0
_PORTS = {"http": 80, "https": 443, "ftp": 21}


def unreachable(urls, seconds=SECONDS):
    """The servers of these addresses that do not answer, by host and port.

    Only connects, at the same time to all; through a proxy where the
    environment names one. Addresses of other kinds than http, https and ftp
    are left out.

    Args:
        urls: addresses of files.
        seconds: after which a server counts as unreachable.

    Returns:
        Sorted list of texts, e.g. ["example.org:443"].

    Example:

    >>> unreachable(["http://no.such.host.invalid/a.zip", "file:///tmp/a"])
    ['no.such.host.invalid:80']
    """
    places = {_place(url) for url in urls} - {None}
    answered = set()

    def connect(host, port):
        with (
            contextlib.suppress(OSError, UnicodeError),
            socket.create_connection((host, port), timeout=seconds),
        ):
            answered.add((host, port))

    # Looking up a name knows no timeout, so nobody waits for these threads.
    threads = [
        threading.Thread(target=connect, args=place, daemon=True)
        for place in places
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return sorted(f"{host}:{port}" for host, port in places - answered)


def _place(url):
    """Host and port to connect to, or None."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.hostname):
        parts = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return parts.hostname, parts.port or _PORTS.get(parts.scheme, 80)
