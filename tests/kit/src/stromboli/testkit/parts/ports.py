"""Free ports on loopback for servers that are stopped and started again.

Ports are below the kernel's ephemeral range. A server cannot rely on an ephemeral port after a
restart: a client that keeps connecting to the stopped server's port can be assigned that port as
its own, connects to itself, and the server cannot bind.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 15000  # above the ports that well-known servers use
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32768  # Linux's default, for kernels that do not report it
ATTEMPTS = 1000


def _ephemeral_start() -> int:
    try:
        start = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        return DEFAULT_EPHEMERAL_START
    return start if start > LOWEST + ATTEMPTS else DEFAULT_EPHEMERAL_START


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports on which no process listens now.

    Another process may bind one before the caller does: then call this again. Raises OSError if a
    thousand random ports are all in use.
    """
    end = _ephemeral_start()
    held: list[socket.socket] = []
    try:
        for _ in range(ATTEMPTS):
            if len(held) == count:
                break
            candidate = LOWEST + secrets.randbelow(end - LOWEST)
            listener = socket.socket()
            try:
                listener.bind((LOOPBACK, candidate))
            except OSError:
                listener.close()
            else:
                held.append(listener)
        else:
            raise OSError(f"no {count} free ports between {LOWEST} and {end}")
        return tuple(listener.getsockname()[1] for listener in held)
    finally:
        for listener in held:
            listener.close()


def accepts_connections(port: int) -> bool:
    """True if something accepts a connection on this loopback port now."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0
