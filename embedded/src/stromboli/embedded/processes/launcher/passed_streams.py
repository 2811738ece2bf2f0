"""Passes the streams of a command from the node to a launcher: file descriptors over a socket.

The node listens on an abstract Unix socket, which is visible in every mount and process namespace
(containers share the network). The launcher connects and sends the key that it received over its
pipe; other processes of the machine do not know it. The node then sends three descriptors (stdin,
stdout, stderr) with one byte: whether they are a terminal.
"""

import os
import secrets
import socket

from stromboli.embedded.processes.launcher.children import Streams

WITHIN_S = 5.0
"""Time limit in seconds: the node accepts connections immediately, and the launcher is blocked
meanwhile."""
_KEY_BYTES = 16
TERMINAL, PIPES = b"t", b"p"


def listen() -> tuple[socket.socket, str, str]:
    """A listening socket, its name and the key of one launcher."""
    name, key = secrets.token_hex(_KEY_BYTES), secrets.token_hex(_KEY_BYTES)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(f"\0strom-{name}")
    listening.listen(1)
    return listening, name, key


def hand_over(connection: socket.socket, key: str, streams: Streams) -> bool:
    """Send the streams to a launcher that presents the key; returns False if it does not. Blocks
    briefly."""
    connection.settimeout(WITHIN_S)
    presented_key = b""
    while len(presented_key) < len(key) and (
        part := connection.recv(len(key) - len(presented_key))
    ):
        presented_key += part
    if not secrets.compare_digest(presented_key, key.encode()) or streams.stdin is None:
        return False
    descriptors = [streams.stdin, streams.stdout, streams.stderr]
    socket.send_fds(connection, [TERMINAL if streams.is_terminal else PIPES], descriptors)
    return True


def receive(name: str, key: str) -> Streams:
    """Receive the streams from the node. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(WITHIN_S)
        connection.connect(f"\0strom-{name}")
        connection.sendall(key.encode())
        kind, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    for each in descriptors:
        os.set_inheritable(each, False)  # noqa: FBT003 - its parameter has no name
    if len(descriptors) != 3:
        raise OSError("the node did not send the streams of the command")
    stdin, stdout, stderr = descriptors
    return Streams(stdin, stdout, stderr, is_terminal=kind == TERMINAL)


def close(streams: Streams) -> None:
    """Close this process's copies of the streams."""
    for each in (streams.stdin, streams.stdout, streams.stderr):
        if each is not None:
            os.close(each)
