"""Connects a command in a pod with stdin, stdout and the terminal of this process."""

import asyncio
import concurrent.futures
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from stromboli.client.sessions import opening, targets
from stromboli.shared.cluster.pod_sessions import ExecRequest, ExecSession

CHUNK_BYTES = 1 << 16


async def run(
    place: opening.Place,
    target: targets.Target,
    command: Sequence[str],
    *,
    stdin: bool,
    tty: bool,
) -> int:
    """Run a command to its end; return its exit code. Raises ClientError."""
    request = ExecRequest(command=tuple(command), container=target.container, stdin=stdin, tty=tty)
    sessions = await opening.sessions_at(place)
    with opening.translated():
        async with sessions.exec(target.namespace, target.pod, request) as session:
            with _terminal(session) if tty else contextlib.nullcontext():
                if stdin:
                    _feed(session)
                async for chunk in session.output():
                    stream = sys.stdout if chunk.stream == "stdout" else sys.stderr
                    stream.buffer.write(chunk.data)
                    stream.flush()
        return session.exit_code()


def _feed(session: ExecSession) -> None:
    """Send stdin to the command, from a thread: a read of a terminal cannot be cancelled."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        # The loop is closed when the command ends while this thread still reads.
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
            while data := _read_stdin():
                asyncio.run_coroutine_threadsafe(session.write(data), loop).result()
            asyncio.run_coroutine_threadsafe(session.close_stdin(), loop).result()

    threading.Thread(target=read, daemon=True).start()


def _read_stdin() -> bytes:
    """The next bytes of stdin. Reads the file descriptor: a thread that holds the buffer's lock
    would abort the interpreter at its exit.
    """
    try:
        return os.read(sys.stdin.fileno(), CHUNK_BYTES)
    except io.UnsupportedOperation:  # stdin was replaced within this process
        return sys.stdin.buffer.read()
    except OSError:
        return b""


@contextlib.contextmanager
def _terminal(session: ExecSession) -> Iterator[None]:
    """Put the terminal into raw mode, and send its size and every change of it to the command."""
    import termios
    import tty

    loop = asyncio.get_running_loop()
    sending: set[asyncio.Task[None]] = set()

    def resize() -> None:
        size = os.get_terminal_size(sys.stdin.fileno())
        task = loop.create_task(session.resize(size.columns, size.lines))
        sending.add(task)
        task.add_done_callback(sending.discard)

    before = termios.tcgetattr(sys.stdin.fileno())
    resize()
    loop.add_signal_handler(signal.SIGWINCH, resize)
    tty.setraw(sys.stdin.fileno(), termios.TCSANOW)  # keeps what is typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
        loop.remove_signal_handler(signal.SIGWINCH)
