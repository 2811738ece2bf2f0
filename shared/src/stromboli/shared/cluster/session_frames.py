"""Encodes and decodes the messages of Kubernetes' remote command protocol over WebSockets. Pure.

Each binary message is one channel number and data (``v4.channel.k8s.io``). Version 5 adds the
message ``255, channel``, which closes a channel: without it a command cannot read the end of its
input. The last message of a command is a ``Status`` on the error channel.

A forwarded port has two channels: data (0) and error (1). The first message on each of them
contains only the port, as two bytes in little endian.

Sources: KEP-4006 (Transition from SPDY to WebSockets), k8s.io/apimachinery/pkg/util/remotecommand,
k8s.io/kubelet/pkg/cri/streaming.
"""

import msgspec

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Protocol versions in the order of preference. API servers support version 5 since Kubernetes
1.30."""
FORWARD_PROTOCOL = "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
DATA, FORWARD_ERROR = 0, 1
EXIT_CODE = "ExitCode"


class Cause(msgspec.Struct, frozen=True):
    """A cause within a ``Status``."""

    reason: str = ""
    message: str = ""


class Details(msgspec.Struct, frozen=True):
    """The details of a ``Status``."""

    causes: tuple[Cause, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """The end of a command, as Kubernetes' ``Status``."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details = Details()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command; None if it could not be run."""
        if self.status == "Success":
            return 0
        for cause in self.details.causes:
            if cause.reason == EXIT_CODE and cause.message.isdecimal():
                return int(cause.message)
        return None


class Size(msgspec.Struct, frozen=True, rename="pascal"):
    """The size of a terminal in characters."""

    width: int
    height: int


def status_of(exit_code: int) -> Status:
    """The status of a command that ran, from its exit code."""
    if exit_code == 0:
        return Status(status="Success")
    return Status(
        status="Failure",
        message=f"command terminated with non-zero exit code: exit status {exit_code}",
        reason="NonZeroExitCode",
        details=Details((Cause(EXIT_CODE, str(exit_code)),)),
    )


def frame(channel: int, data: bytes) -> bytes:
    """The message with this data on a channel."""
    return bytes((channel,)) + data


def close_of(channel: int) -> bytes:
    """The message of version 5 that closes a channel."""
    return bytes((CLOSE, channel))


def resize(columns: int, rows: int) -> bytes:
    """The message that sets the size of the terminal."""
    return frame(RESIZE, msgspec.json.encode(Size(columns, rows)))


def size(data: bytes) -> Size:
    """The size in a message on the channel ``RESIZE``. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Size)


def status(data: bytes) -> Status:
    """The status in a message on the channel ``ERROR``. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Status)


def port_prefix(port: int) -> bytes:
    """The data of the first message on each channel of a forwarded port."""
    return port.to_bytes(2, "little")
